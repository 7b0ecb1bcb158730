#include "machine.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "failure.h"
#include "files.h"

namespace msdc::runner {

namespace {

// Sum of the kB of every line of `path` that starts with `name` and a colon; -1 where there is none. Reads through a
// buffer on the stack, so that measuring memory allocates none.
int64_t sum_kib(const char* path, const char* name) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  const size_t name_size = std::strlen(name);
  int64_t sum = -1;
  char line[512];
  size_t used = 0;
  char block[4096];
  ssize_t got = 0;
  while ((got = ::read(fd, block, sizeof block)) > 0) {
    for (ssize_t i = 0; i < got; ++i) {
      if (block[i] != '\n') {
        if (used + 1 < sizeof line) line[used++] = block[i];
        continue;
      }
      line[used] = '\0';
      used = 0;
      if (std::strncmp(line, name, name_size) != 0 || line[name_size] != ':') continue;
      sum = (sum < 0 ? 0 : sum) + std::strtoll(line + name_size + 1, nullptr, 10);
    }
  }
  ::close(fd);
  return sum;
}

}  // namespace

Meter::Meter(bool count_instructions) {
  if (!count_instructions) return;
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.size = sizeof attributes;
  attributes.type = PERF_TYPE_HARDWARE;
  attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  counter_ = static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
  if (counter_ < 0) {
    throw Failure(MSDC_UNSUPPORTED, std::string("no counter of instructions here (") + std::strerror(errno) + ")");
  }
}

Meter::~Meter() {
  if (counter_ >= 0) ::close(counter_);
}

int64_t Meter::now() const {
  if (counter_ >= 0) {
    int64_t count = 0;
    if (::read(counter_, &count, sizeof count) != sizeof count) {
      throw Failure(MSDC_RUNTIME, "the counter of instructions cannot be read");
    }
    return count;
  }
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

MemoryKib read_memory() {
  // smaps_rollup exists since Linux 4.14 and Android 9; smaps has the same numbers per mapping.
  const char* maps = ::access("/proc/self/smaps_rollup", R_OK) == 0 ? "/proc/self/smaps_rollup" : "/proc/self/smaps";
  MemoryKib out = {sum_kib("/proc/self/status", "VmHWM"), sum_kib(maps, "Pss"), sum_kib(maps, "Rss"),
                   sum_kib(maps, "Anonymous"), sum_kib(maps, "SwapPss")};
  // A kernel without swap reports none.
  if (out.swap < 0) out.swap = 0;
  if (out.peak < 0 || out.pss < 0 || out.rss < 0 || out.anonymous < 0) {
    throw Failure(MSDC_UNSUPPORTED, "memory cannot be measured: /proc/self/status or smaps lacks a field");
  }
  return out;
}

void set_affinity(const std::vector<int32_t>& cpus) {
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int32_t cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    throw Failure(MSDC_BAD_ARGUMENT, std::string("these CPUs are not usable here (") + std::strerror(errno) + ")");
  }
}

std::vector<int32_t> read_affinity() {
  std::vector<int32_t> out;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) out.push_back(cpu);
  }
  return out;
}

Machine read_machine() {
  Machine out;
  std::string all;
  try {
    all = read_file("/proc/cpuinfo", 1u << 20);
  } catch (const Failure&) {
    // Some Android releases hide it from apps, but not from the shell user.
  }
  const size_t end = all.find("\n\n");
  out.cpuinfo = all.substr(0, end == std::string::npos ? all.size() : end);
  // 32-bit Arm and Android print the machine's name after the last processor.
  const size_t hardware = all.find("\nHardware");
  if (hardware != std::string::npos && hardware >= out.cpuinfo.size()) {
    out.cpuinfo += all.substr(hardware, all.find('\n', hardware + 1) - hardware);
  }
  utsname names;
  if (::uname(&names) == 0) out.system = std::string(names.sysname) + " " + names.release + " " + names.machine;
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  out.cores = cores > 0 ? static_cast<int32_t>(cores) : 1;
  const int64_t memory = sum_kib("/proc/meminfo", "MemTotal");
  out.memory_kib = memory > 0 ? memory : 0;
  return out;
}

}  // namespace msdc::runner
