// What the core and SQLite need of a system, in a wasm without one: files that JavaScript gave, and no others.
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
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

int sqlite3_os_init() {
  static sqlite3_vfs memory_only = {};
  memory_only.iVersion = 1;
  memory_only.szOsFile = sizeof(sqlite3_file);
  memory_only.mxPathname = 512;
  memory_only.zName = "none";
  memory_only.xOpen = [](sqlite3_vfs*, const char*, sqlite3_file* file, int, int*) {
    file->pMethods = nullptr;
    return SQLITE_CANTOPEN;
  };
  memory_only.xDelete = [](sqlite3_vfs*, const char*, int) { return SQLITE_OK; };
  memory_only.xAccess = [](sqlite3_vfs*, const char*, int, int* exists) { return *exists = 0, SQLITE_OK; };
  memory_only.xFullPathname = [](sqlite3_vfs*, const char* name, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", name);
    return SQLITE_OK;
  };
  // Names of temporary files and the time are not used: equal calls write equal files.
  memory_only.xRandomness = [](sqlite3_vfs*, int size, char* out) { return std::memset(out, 1, size), size; };
  memory_only.xSleep = [](sqlite3_vfs*, int microseconds) { return microseconds; };
  memory_only.xCurrentTime = [](sqlite3_vfs*, double* days) { return *days = 2440587.5, SQLITE_OK; };
  return sqlite3_vfs_register(&memory_only, 1);
}

int sqlite3_os_end() { return SQLITE_OK; }

}  // extern "C"
