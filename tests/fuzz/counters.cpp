// Compiled without coverage itself, or the hook would call itself.
#include "counters.h"

#include <cstdlib>
#include <malloc.h>
#include <new>

namespace {

uint64_t blocks;
size_t held, peak;
uint8_t reached[fuzz::kCells];
uint32_t cell_list[fuzz::kCells];
size_t cell_count;

void* take(size_t bytes) {
  void* out = std::malloc(bytes == 0 ? 1 : bytes);
  if (out == nullptr) throw std::bad_alloc();
  held += malloc_usable_size(out);
  if (held > peak) peak = held;
  return out;
}

void give(void* pointer) {
  if (pointer == nullptr) return;
  held -= malloc_usable_size(pointer);
  std::free(pointer);
}

}  // namespace

void* operator new(size_t bytes) { return take(bytes); }
void* operator new[](size_t bytes) { return take(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return take(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return take(bytes); }
void operator delete(void* pointer) noexcept { give(pointer); }
void operator delete[](void* pointer) noexcept { give(pointer); }
void operator delete(void* pointer, const std::nothrow_t&) noexcept { give(pointer); }
void operator delete[](void* pointer, const std::nothrow_t&) noexcept { give(pointer); }
void operator delete(void* pointer, size_t) noexcept { give(pointer); }
void operator delete[](void* pointer, size_t) noexcept { give(pointer); }

extern "C" void __sanitizer_cov_trace_pc(void) {
  ++blocks;
  const uintptr_t place = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  const uint32_t cell = static_cast<uint32_t>((place * 0x9E3779B97F4A7C15ull >> 20) % fuzz::kCells);
  if (reached[cell] == 0) {
    reached[cell] = 1;
    cell_list[cell_count++] = cell;
  }
}

namespace fuzz {

void start_counting() {
  blocks = 0;
  peak = held;
  while (cell_count > 0) reached[cell_list[--cell_count]] = 0;
}

Cost cost() { return {blocks, peak - (held < peak ? held : peak)}; }

size_t reached_cells(const uint32_t** cells) {
  *cells = cell_list;
  return cell_count;
}

}  // namespace fuzz
