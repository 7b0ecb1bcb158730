// A small strict JSON reader for bundle.json, golden.json and requests: bounded depth and size, no extensions.
//
// A document of n bytes takes its own text, in which strings are decoded where they stand, and 24 bytes per value; a value
// is two bytes at least. Paths for messages are put together when something is wrong, never stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

namespace msdc {

class JsonDocument;
enum class JsonKind : uint32_t { null, boolean, number, text, array, object };

// A value inside a document, which must outlive it.
class Json {
 public:
  class Items;
  class Members;

  JsonKind kind() const;
  bool is_null() const { return kind() == JsonKind::null; }
  bool has(std::string_view key) const;

  // Typed access; a missing key or another type throws Failure(MSDC_DAMAGED) with the path of the value.
  Json at(std::string_view key) const;
  std::string_view text() const;
  double number() const;
  int64_t integer() const;  // a number without a fraction, inside +-2^53
  bool boolean() const;
  Items array() const;     // of Json
  Members object() const;  // of std::pair<std::string_view, Json>

 private:
  friend class JsonDocument;
  Json(const JsonDocument* document, uint32_t index) : document_(document), index_(index) {}
  [[noreturn]] void wrong(const char* expected) const;
  const struct JsonNode& node() const;
  std::string path() const;

  const JsonDocument* document_;
  uint32_t index_;  // 0, the document's root, also means "none": no value has the root after it or inside it
};

struct JsonNode {
  struct Range {
    uint32_t start, size;
  };

  uint32_t parent = 0;
  uint32_t next = 0;  // in the same list or object, 0 for none
  uint32_t key_start = 0;
  uint32_t key_size : 29;
  JsonKind kind : 3;
  union {
    double number;   // boolean, number
    Range text;      // text
    uint32_t first;  // array, object: 0 where it is empty
  };

  JsonNode() : key_size(0), kind(JsonKind::null), number(0) {}
};

class JsonDocument {
 public:
  // Parse a whole document. `where` names the file in messages. Throws Failure(MSDC_DAMAGED).
  JsonDocument(std::string text, std::string where);
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  Json root() const { return {this, 0}; }

 private:
  friend class Json;
  friend class JsonParser;
  std::string_view view(uint32_t start, uint32_t size) const { return std::string_view(text_).substr(start, size); }
  std::string_view key(const JsonNode& node) const { return view(node.key_start, node.key_size); }

  std::string text_;
  std::string where_;
  std::deque<JsonNode> nodes_;
};

// The children of a list or an object, in the order of the text.
class Json::Items {
 public:
  class Iterator {
   public:
    Iterator(const JsonDocument* document, uint32_t index) : document_(document), index_(index) {}
    Json operator*() const { return {document_, index_}; }
    Iterator& operator++() {
      index_ = Json(document_, index_).node().next;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    const JsonDocument* document_;
    uint32_t index_;
  };

  Items(const JsonDocument* document, uint32_t first) : document_(document), first_(first) {}
  // Walks the list: to make room for what it is turned into.
  size_t size() const {
    size_t out = 0;
    for (Iterator at = begin(); at != end(); ++at) ++out;
    return out;
  }
  Iterator begin() const { return {document_, first_}; }
  Iterator end() const { return {document_, 0}; }

 private:
  const JsonDocument* document_;
  uint32_t first_;
};

class Json::Members {
 public:
  class Iterator {
   public:
    Iterator(const JsonDocument* document, uint32_t index) : document_(document), index_(index) {}
    std::pair<std::string_view, Json> operator*() const {
      const Json value(document_, index_);
      return {document_->key(value.node()), value};
    }
    Iterator& operator++() {
      index_ = Json(document_, index_).node().next;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    const JsonDocument* document_;
    uint32_t index_;
  };

  Members(const JsonDocument* document, uint32_t first) : document_(document), first_(first) {}
  Iterator begin() const { return {document_, first_}; }
  Iterator end() const { return {document_, 0}; }

 private:
  const JsonDocument* document_;
  uint32_t first_;
};

// Text as a JSON string with its quotes.
std::string json_quote(std::string_view text);

}  // namespace msdc
