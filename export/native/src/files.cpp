#include "files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "failure.h"
#include "sha256.h"

namespace msdc {

namespace {

class Descriptor {
 public:
  // Without blocking: a pipe that nobody writes to must not hold the caller, and is refused as no plain file.
  explicit Descriptor(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) damaged(path + ": " + (errno == ENOENT ? "no such file" : std::strerror(errno)));
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  uint64_t plain_bytes(const std::string& path) const {
    struct stat info;
    if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) damaged(path + ": not a plain file");
    return static_cast<uint64_t>(info.st_size);
  }

 private:
  int fd_;
};

template <typename Consumer>
void read_blocks(const std::string& path, Consumer consume) {
  Descriptor file(path);
  file.plain_bytes(path);
  std::vector<char> block(64 * 1024);
  while (true) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) damaged(path + ": " + std::strerror(errno));
    if (got == 0) return;
    consume(std::string_view(block.data(), static_cast<size_t>(got)));
  }
}

}  // namespace

MappedFile::MappedFile(const std::string& path, uint64_t max_bytes) {
  Descriptor file(path);
  const uint64_t bytes = file.plain_bytes(path);
  if (bytes == 0) damaged(path + ": empty");
  if (bytes > max_bytes) damaged(path + ": " + std::to_string(bytes) + " bytes, more than this tool reads");
  void* data = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) throw Failure(MSDC_MEMORY, path + ": cannot be mapped (" + std::strerror(errno) + ")");
  data_ = static_cast<const char*>(data);
  size_ = bytes;
}

MappedFile::~MappedFile() { ::munmap(const_cast<char*>(data_), size_); }

void MappedFile::forget() const { ::madvise(const_cast<char*>(data_), size_, MADV_DONTNEED); }

std::string read_file(const std::string& path, uint64_t max_bytes) {
  std::string out;
  // In one piece: a string that grows holds twice its bytes on the way.
  const int64_t bytes = file_bytes(path);
  if (bytes > 0) out.reserve(std::min(static_cast<uint64_t>(bytes), max_bytes));
  read_blocks(path, [&](std::string_view block) {
    if (out.size() + block.size() > max_bytes) damaged(path + ": larger than this tool reads");
    out.append(block);
  });
  return out;
}

int64_t file_bytes(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return -1;
  return static_cast<int64_t>(info.st_size);
}

std::string sha256_file(const std::string& path) {
  Sha256 hash;
  read_blocks(path, [&](std::string_view block) { hash.add(block); });
  return hash.hex();
}

std::string sha256_text(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hash.hex();
}

}  // namespace msdc
