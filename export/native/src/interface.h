// What the C interfaces share: handles, and the status and line in which exceptions end.
#pragma once

#include <algorithm>
#include <new>
#include <string_view>

#include "encoder.h"
#include "failure.h"
#include "utf8.h"

struct msdc_encoder {
  msdc::Encoder encoder;
};

struct msdc_tokenizer {
  msdc::Manifest manifest;
  msdc::Tokenizer tokenizer;
};

namespace msdc {

// What could end the line or control a terminal: control characters, line and paragraph separators, marks of direction.
inline bool is_unsafe(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// As much of `line` as there is room for, in whole characters. Paths and names in it may be anything: U+FFFD replaces
// bytes that are not UTF-8, which Java's strings cannot take, and for characters that are unsafe.
inline void write_line(std::string_view line, char* error, size_t error_size) {
  if (error == nullptr || error_size == 0) return;
  size_t used = 0;
  while (!line.empty()) {
    const size_t bytes = valid_bytes(line);
    uint32_t code = 0;
    if (bytes != 0) decode_utf8(line, 0, &code);
    const std::string_view shown = bytes == 0 || is_unsafe(code) ? "\xEF\xBF\xBD" : line.substr(0, bytes);
    if (shown.size() > error_size - 1 - used) break;
    used += shown.copy(error + used, shown.size());
    line.remove_prefix(std::max<size_t>(bytes, 1));
  }
  error[used] = '\0';
}

template <typename Work>
msdc_status guarded(char* error, size_t error_size, Work work) {
  write_line("", error, error_size);
  try {
    work();
    return MSDC_OK;
  } catch (const Failure& failure) {
    write_line(failure.what(), error, error_size);
    return failure.status;
  } catch (const std::bad_alloc&) {
    write_line("out of memory", error, error_size);
    return MSDC_MEMORY;
  } catch (const std::exception& other) {
    write_line(other.what(), error, error_size);
    return MSDC_RUNTIME;
  }
}

inline void need(bool held, const char* line) {
  if (!held) throw Failure(MSDC_BAD_ARGUMENT, line);
}

inline std::string_view view(const char* text, size_t size) {
  need(text != nullptr || size == 0, "no text");
  return {text, size};
}

}  // namespace msdc
