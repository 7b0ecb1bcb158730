// Included before every source of the wasm: its C++ library has no threads, and nothing to lock.
#pragma once

#ifdef __cplusplus
#include <mutex>

namespace std {

struct mutex {
  void lock() {}
  void unlock() {}
};

struct condition_variable {
  template <typename Lock, typename Condition>
  void wait(Lock&, Condition) {}
  void notify_all() {}
};

}  // namespace std
#endif
