// UTF-8 as SentencePiece reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace msdc {

// U+2581, which stands for a space in pieces.
constexpr std::string_view kSpace = "\xE2\x96\x81";

// Bytes that the lead byte announces (1 for a stray trail byte), without looking further.
inline size_t announced_bytes(char lead) {
  static constexpr unsigned char kBytes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return kBytes[static_cast<unsigned char>(lead) >> 4];
}

// Bytes of the well-formed character at the front of `text`, 0 where there is none (overlong, surrogate, cut off).
inline size_t valid_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto trail = [&](size_t i) { return i < text.size() && (byte(i) & 0xC0) == 0x80; };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if ((lead & 0xE0) == 0xC0) return trail(1) && lead >= 0xC2 ? 2 : 0;
  if ((lead & 0xF0) == 0xE0) {
    if (!trail(1) || !trail(2)) return 0;
    const uint32_t code = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    return code >= 0x800 && (code < 0xD800 || code > 0xDFFF) ? 3 : 0;
  }
  if ((lead & 0xF8) == 0xF0) {
    if (!trail(1) || !trail(2) || !trail(3)) return 0;
    const uint32_t code =
        (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    return code >= 0x10000 && code <= 0x10FFFF ? 4 : 0;
  }
  return 0;
}

inline bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = valid_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

// The character at byte `at`, in `*code`; its bytes, 0 at the end. Never reads past the end: what is no UTF-8 gives some
// number, one byte at least.
inline size_t decode_utf8(std::string_view text, size_t at, uint32_t* code) {
  *code = 0;
  if (at >= text.size()) return 0;
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) {
    *code = lead;
    return 1;
  }
  const size_t announced = announced_bytes(text[at]);
  const size_t bytes = announced < text.size() - at ? announced : text.size() - at;
  uint32_t out = bytes == 1 ? lead : lead & (0xFFu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) out = out << 6 | (byte(i) & 0x3F);
  *code = out;
  return bytes;
}

// The characters of a text; what is no UTF-8 gives some numbers.
inline std::u32string code_points(std::string_view text) {
  std::u32string out;
  uint32_t code = 0;
  for (size_t at = 0, bytes; (bytes = decode_utf8(text, at, &code)) != 0; at += bytes) out.push_back(code);
  return out;
}

// Where Python's str.split() splits.
inline bool is_space(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x85 || code == 0xA0 || code == 0x1680 || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

// Bytes of the character that ends before byte `at` > 0.
inline size_t step_back(std::string_view text, size_t at) {
  size_t bytes = 1;
  while (bytes < 4 && bytes < at && (static_cast<unsigned char>(text[at - bytes]) & 0xC0) == 0x80) ++bytes;
  return bytes;
}

// Append a code point that is known to be a valid one.
inline void append_utf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

// Characters as UTF-8; U+FFFD for numbers that are none.
inline std::string utf8_of(std::u32string_view codes) {
  std::string out;
  for (const char32_t code : codes) {
    const bool is_character = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    append_utf8(is_character ? code : 0xFFFD, &out);
  }
  return out;
}

}  // namespace msdc
