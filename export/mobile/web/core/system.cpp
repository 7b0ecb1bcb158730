// What the core and SQLite need of a system, in a wasm without one: files that JavaScript gave, and no others.
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "failure.h"
#include "files.h"
#include "interface.h"
#include "msdc_index.h"
#include "sha256.h"
#include "sqlite3.h"

namespace {

using Files = std::map<std::string, std::string, std::less<>>;

Files& files() {
  static Files out;
  return out;
}

const std::string& content_of(const std::string& path, uint64_t max_bytes) {
  const auto entry = files().find(path);
  if (entry == files().end()) msdc::damaged(path + ": no such file");
  if (entry->second.size() > max_bytes) msdc::damaged(path + ": larger than this tool reads");
  return entry->second;
}

}  // namespace

namespace msdc {

MappedFile::MappedFile(const std::string& path, uint64_t max_bytes) {
  const std::string& content = content_of(path, max_bytes);
  data_ = content.data();
  size_ = content.size();
}

MappedFile::~MappedFile() = default;

void MappedFile::forget() const {}

std::string read_file(const std::string& path, uint64_t max_bytes) { return content_of(path, max_bytes); }

int64_t file_bytes(const std::string& path) {
  const auto entry = files().find(path);
  return entry == files().end() ? -1 : static_cast<int64_t>(entry->second.size());
}

std::string sha256_file(const std::string& path) { return sha256_text(content_of(path, UINT64_MAX)); }

std::string sha256_text(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

}  // namespace msdc

// The tag of C++ exceptions, which the compiler expects of a library.
__asm__(".globl __cpp_exception\n.tagtype __cpp_exception i32\n__cpp_exception:\n");

// The library's own ends the program.
void* operator new(size_t size) {
  void* const out = std::malloc(size == 0 ? 1 : size);
  if (out == nullptr) throw std::bad_alloc();
  return out;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

extern "C" {

// Texts of the core, which JavaScript reads.
__attribute__((import_module("msdc"), import_name("text"))) void msdc_web_on_text(void* context, const char* text,
                                                                                  size_t size);

msdc_on_text msdc_web_receiver() { return msdc_web_on_text; }

// A file of `size` bytes, whose content is written to the address `*content`; of 0 bytes none, where there was one.
msdc_status msdc_web_file(const char* path, size_t size, char** content, char* error, size_t error_size) {
  return msdc::guarded(error, error_size, [&] {
    files().erase(path);
    if (size == 0) return;
    std::string& file = files()[path];
    file.assign(size, '\0');
    *content = file.data();
  });
}

// The tokenizer of the bundle `folder`, by what JavaScript has read of its manifest already.
msdc_status msdc_web_tokenizer(const char* folder, const char* file, int32_t is_pieces, int32_t bos, int32_t eos, int32_t max_length,
                               int32_t vocabulary, msdc_tokenizer** tokenizer, char* error, size_t error_size) {
  return msdc::guarded(error, error_size, [&] {
    msdc::Manifest manifest;
    manifest.tokenizer_kind = is_pieces != 0 ? "sentencepiece" : "tokenizer-json";
    manifest.folder = folder;
    manifest.tokenizer_file = file;
    manifest.bos_id = bos;
    manifest.eos_id = eos;
    manifest.max_length = max_length;
    manifest.vocabulary = vocabulary;
    *tokenizer = new msdc_tokenizer{manifest, msdc::Tokenizer(manifest)};
  });
}

// Gives the ids of a text, special ids included, at most `most`.
msdc_status msdc_web_tokenize(const msdc_tokenizer* tokenizer, const char* text, size_t text_size, uint32_t most,
                              msdc_on_text ids, void* context, char* error, size_t error_size) {
  return msdc::guarded(error, error_size, [&] {
    const std::vector<int32_t> out = tokenizer->tokenizer.encode({text, text_size}, most);
    ids(context, reinterpret_cast<const char*>(out.data()), out.size() * sizeof(int32_t));
  });
}

// The index's file and its journal, which a worker has open in the browser's storage; elsewhere their size is -1.
#define MSDC_WEB(name) __attribute__((import_module("msdc"), import_name(#name)))
MSDC_WEB(size) double msdc_web_size(int32_t is_journal);
MSDC_WEB(read) int32_t msdc_web_read(int32_t is_journal, void* to, int32_t size, double from);
// SQLite's codes: SQLITE_OK, SQLITE_FULL, SQLITE_IOERR.
MSDC_WEB(write) int32_t msdc_web_write(int32_t is_journal, const void* from, int32_t size, double to);
MSDC_WEB(truncate) int32_t msdc_web_truncate(int32_t is_journal, double size);
MSDC_WEB(flush) int32_t msdc_web_flush(int32_t is_journal);

struct WebFile : sqlite3_file {
  int32_t is_journal;
};

static int32_t is_journal(const char* path) {
  const std::string_view name(path), end("-journal");
  return name.size() > end.size() && name.substr(name.size() - end.size()) == end ? 1 : 0;
}

static int32_t of(sqlite3_file* file) { return static_cast<WebFile*>(file)->is_journal; }

static int read_file(sqlite3_file* file, void* to, int size, sqlite3_int64 from) {
  const int32_t count = msdc_web_read(of(file), to, size, static_cast<double>(from));
  if (count < 0) return SQLITE_IOERR_READ;
  if (count == size) return SQLITE_OK;
  std::memset(static_cast<char*>(to) + count, 0, static_cast<size_t>(size - count));
  return SQLITE_IOERR_SHORT_READ;
}

// One worker has the files open: nothing to lock.
static const sqlite3_io_methods* file_methods() {
  static sqlite3_io_methods methods = {};
  methods.iVersion = 1;
  methods.xClose = [](sqlite3_file*) { return SQLITE_OK; };
  methods.xRead = read_file;
  methods.xWrite = [](sqlite3_file* file, const void* from, int size, sqlite3_int64 to) {
    return msdc_web_write(of(file), from, size, static_cast<double>(to));
  };
  methods.xTruncate = [](sqlite3_file* file, sqlite3_int64 size) {
    return msdc_web_truncate(of(file), static_cast<double>(size));
  };
  methods.xSync = [](sqlite3_file* file, int) { return msdc_web_flush(of(file)); };
  methods.xFileSize = [](sqlite3_file* file, sqlite3_int64* size) {
    return *size = static_cast<sqlite3_int64>(msdc_web_size(of(file))), SQLITE_OK;
  };
  methods.xLock = methods.xUnlock = [](sqlite3_file*, int) { return SQLITE_OK; };
  methods.xCheckReservedLock = [](sqlite3_file*, int* locked) { return *locked = 0, SQLITE_OK; };
  methods.xFileControl = [](sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; };
  methods.xSectorSize = [](sqlite3_file*) { return 4096; };
  methods.xDeviceCharacteristics = [](sqlite3_file*) { return 0; };
  return &methods;
}

int sqlite3_os_init() {
  static sqlite3_vfs system = {};
  system.iVersion = 1;
  system.szOsFile = sizeof(WebFile);
  system.mxPathname = 512;
  system.zName = "web";
  system.xOpen = [](sqlite3_vfs*, const char* path, sqlite3_file* file, int flags, int* given) {
    file->pMethods = nullptr;
    if (path == nullptr || msdc_web_size(is_journal(path)) < 0) return SQLITE_CANTOPEN;
    static_cast<WebFile*>(file)->is_journal = is_journal(path);
    file->pMethods = file_methods();
    if (given != nullptr) *given = flags;
    return SQLITE_OK;
  };
  // A file without bytes is none: both stay open.
  system.xDelete = [](sqlite3_vfs*, const char* path, int) { return msdc_web_truncate(is_journal(path), 0); };
  system.xAccess = [](sqlite3_vfs*, const char* path, int, int* exists) {
    return *exists = msdc_web_size(is_journal(path)) > 0, SQLITE_OK;
  };
  system.xFullPathname = [](sqlite3_vfs*, const char* name, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", name);
    return SQLITE_OK;
  };
  // Names of temporary files and the time are not used: equal calls write equal files.
  system.xRandomness = [](sqlite3_vfs*, int size, char* out) { return std::memset(out, 1, size), size; };
  system.xSleep = [](sqlite3_vfs*, int microseconds) { return microseconds; };
  system.xCurrentTime = [](sqlite3_vfs*, double* days) { return *days = 2440587.5, SQLITE_OK; };
  return sqlite3_vfs_register(&system, 1);
}

int sqlite3_os_end() { return SQLITE_OK; }

}  // extern "C"
