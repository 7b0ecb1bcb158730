// This process and this machine, as the kernel reports them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace msdc::runner {

// The clock that samples are differences of.
class Meter {
 public:
  // Nanoseconds of CLOCK_MONOTONIC, or instructions that this thread executed outside the kernel. The processor's own
  // counter excludes interrupts, so equal work gives equal counts. Throws Failure(MSDC_UNSUPPORTED) without one.
  explicit Meter(bool count_instructions);
  ~Meter();
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  int64_t now() const;

 private:
  int counter_ = -1;
};

struct MemoryKib {
  int64_t peak = 0;  // VmHWM
  int64_t pss = 0;
  int64_t rss = 0;
  int64_t anonymous = 0;
  int64_t swap = 0;  // on disk or compressed in zram, shared pages divided as in `pss`
};

// Throws Failure where /proc lacks the fields.
MemoryKib read_memory();

// Run on these CPUs only. Throws Failure(MSDC_BAD_ARGUMENT) where the kernel refuses.
void set_affinity(const std::vector<int32_t>& cpus);

// The CPUs that the kernel lets this process run on; empty where it does not answer.
std::vector<int32_t> read_affinity();

struct Machine {
  std::string cpuinfo;  // the first processor of /proc/cpuinfo, as the kernel prints it
  std::string system;   // uname
  int32_t cores = 1;
  int64_t memory_kib = 0;
};

Machine read_machine();

}  // namespace msdc::runner
