// Files of a bundle: mapped read-only, hashed without being mapped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace msdc {

// A whole file mapped read-only; the kernel may drop its pages. Throws Failure(MSDC_DAMAGED).
class MappedFile {
 public:
  MappedFile(const std::string& path, uint64_t max_bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {data_, size_}; }
  // Advise the kernel that the pages read so far are not needed soon.
  void forget() const;

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// The content of a small file.
std::string read_file(const std::string& path, uint64_t max_bytes);

// Size in bytes, -1 where there is no plain file.
int64_t file_bytes(const std::string& path);

// Hex sha256 of a file, read through a small buffer: a mapped 40 MB would count in the process's peak memory.
std::string sha256_file(const std::string& path);

std::string sha256_text(std::string_view text);

}  // namespace msdc
