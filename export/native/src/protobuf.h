// The protobuf wire format, as far as a SentencePiece model needs it: fields in order, nothing allocated.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "failure.h"

namespace msdc {

struct ProtoField {
  uint32_t number = 0;
  uint32_t wire = 0;           // 0 varint, 1 eight bytes, 2 bytes, 5 four bytes
  uint64_t value = 0;          // wire 0, 1, 5
  std::string_view bytes;      // wire 2
  const char* start = nullptr; // where the field's tag begins

  float as_float() const {
    const uint32_t bits = static_cast<uint32_t>(value);
    float out;
    std::memcpy(&out, &bits, sizeof out);
    return out;
  }
};

class ProtoReader {
 public:
  ProtoReader(std::string_view bytes, const std::string& where) : rest_(bytes), where_(where) {}

  // The field at the front where it is number 1, of less than 128 bytes, else nothing and no step: most of a model.
  bool next_short(std::string_view* bytes) {
    if (rest_.size() < 2 || rest_[0] != '\x0A' || static_cast<unsigned char>(rest_[1]) >= 0x80) return false;
    const size_t size = static_cast<unsigned char>(rest_[1]);
    if (size > rest_.size() - 2) return false;
    *bytes = std::string_view(rest_.data() + 2, size);
    rest_.remove_prefix(2 + size);
    return true;
  }

  // The next field, or false at the end. Throws Failure(MSDC_DAMAGED).
  bool next(ProtoField* field) {
    if (rest_.empty()) return false;
    field->start = rest_.data();
    const uint64_t tag = varint();
    field->number = static_cast<uint32_t>(tag >> 3);
    field->wire = static_cast<uint32_t>(tag & 7);
    if (field->number == 0) fail();
    switch (field->wire) {
      case 0: field->value = varint(); break;
      case 1: field->value = fixed(8); break;
      case 2: {
        const uint64_t size = varint();
        if (size > rest_.size()) fail();
        field->bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        break;
      }
      case 5: field->value = fixed(4); break;
      default: fail();
    }
    return true;
  }

 private:
  [[noreturn]] void fail() const { damaged(where_ + ": not a SentencePiece model (its protobuf is broken)"); }

  uint64_t varint() {
    uint64_t out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) fail();
      const unsigned char byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      out |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return out;
    }
    fail();
  }

  uint64_t fixed(size_t bytes) {
    if (rest_.size() < bytes) fail();
    uint64_t out = 0;
    for (size_t i = 0; i < bytes; ++i) out |= static_cast<uint64_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    rest_.remove_prefix(bytes);
    return out;
  }

  std::string_view rest_;
  const std::string& where_;
};

}  // namespace msdc
