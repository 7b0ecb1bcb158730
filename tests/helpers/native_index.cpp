// What tests need inside the index: a file system that fails or ends the process at a write, and blocks of another size.
#include <unistd.h>

#include <cstring>

#include "database.h"

namespace {

enum Fault { kNone, kFull, kKill };

Fault fault = kNone;
long remaining = 0;  // writes before the fault
sqlite3_vfs* system_vfs = nullptr;
sqlite3_vfs test_vfs;

struct File {
  sqlite3_file base;
  sqlite3_io_methods methods;
  const sqlite3_io_methods* system_methods;
  // The system's file follows.
};

sqlite3_file* system_file(sqlite3_file* file) { return reinterpret_cast<sqlite3_file*>(reinterpret_cast<File*>(file) + 1); }

// Whether a write may happen. A full disk has no space for a longer file; what is there can be written and cut.
bool may_write(bool extends) {
  if (fault == kNone || remaining > 0) {
    --remaining;
    return true;
  }
  if (fault == kKill) _exit(9);
  return !extends;
}

int write(sqlite3_file* file, const void* bytes, int size, sqlite3_int64 offset) {
  sqlite3_int64 length = 0;
  system_file(file)->pMethods->xFileSize(system_file(file), &length);
  if (!may_write(offset + size > length)) return SQLITE_FULL;
  return system_file(file)->pMethods->xWrite(system_file(file), bytes, size, offset);
}

int sync(sqlite3_file* file, int flags) {
  may_write(false);
  return system_file(file)->pMethods->xSync(system_file(file), flags);
}

int truncate(sqlite3_file* file, sqlite3_int64 size) {
  may_write(false);
  return system_file(file)->pMethods->xTruncate(system_file(file), size);
}

#define FORWARD(name, parameters, arguments)                                                      \
  int name parameters { return system_file(file)->pMethods->name arguments; }
FORWARD(xClose, (sqlite3_file * file), (system_file(file)))
FORWARD(xRead, (sqlite3_file * file, void* bytes, int size, sqlite3_int64 offset), (system_file(file), bytes, size, offset))
FORWARD(xFileSize, (sqlite3_file * file, sqlite3_int64* size), (system_file(file), size))
FORWARD(xLock, (sqlite3_file * file, int lock), (system_file(file), lock))
FORWARD(xUnlock, (sqlite3_file * file, int lock), (system_file(file), lock))
FORWARD(xCheckReservedLock, (sqlite3_file * file, int* is_locked), (system_file(file), is_locked))
FORWARD(xFileControl, (sqlite3_file * file, int operation, void* argument), (system_file(file), operation, argument))
FORWARD(xSectorSize, (sqlite3_file * file), (system_file(file)))
FORWARD(xDeviceCharacteristics, (sqlite3_file * file), (system_file(file)))
FORWARD(xShmMap, (sqlite3_file * file, int page, int size, int extends, void volatile** map), (system_file(file), page, size, extends, map))
FORWARD(xShmLock, (sqlite3_file * file, int offset, int count, int flags), (system_file(file), offset, count, flags))
FORWARD(xShmUnmap, (sqlite3_file * file, int removes), (system_file(file), removes))
void xShmBarrier(sqlite3_file* file) { system_file(file)->pMethods->xShmBarrier(system_file(file)); }

int open(sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
  File* wrapper = reinterpret_cast<File*>(file);
  std::memset(wrapper, 0, sizeof *wrapper);
  const int code = system_vfs->xOpen(system_vfs, name, system_file(file), flags, out);
  if (code != SQLITE_OK) return code;
  wrapper->methods = {2,      xClose, xRead,   write,  truncate, sync,        xFileSize, xLock, xUnlock, xCheckReservedLock,
                      xFileControl, xSectorSize, xDeviceCharacteristics, xShmMap, xShmLock, xShmBarrier, xShmUnmap,
                      nullptr, nullptr};
  wrapper->base.pMethods = &wrapper->methods;
  return SQLITE_OK;
}

}  // namespace

#define TEST_API extern "C" __attribute__((visibility("default")))

// Let `count` writes happen; then the disk is full (1), or the process ends (2). 0: no faults.
TEST_API void test_faults(int kind, long count) {
  if (system_vfs == nullptr) {
    system_vfs = sqlite3_vfs_find(nullptr);
    test_vfs = *system_vfs;
    test_vfs.zName = "test";
    test_vfs.szOsFile = system_vfs->szOsFile + static_cast<int>(sizeof(File));
    test_vfs.xOpen = open;
    sqlite3_vfs_register(&test_vfs, 1);
  }
  fault = static_cast<Fault>(kind);
  remaining = count;
}

TEST_API void test_set_block(size_t documents) {
  const_cast<msdc::SearchConstants&>(msdc::search_constants()).block = documents;
}
