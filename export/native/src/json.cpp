#include "json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxTextBytes = (1u << 29) - 1;  // what the sizes of a node can say
constexpr size_t kMaxNumberBytes = 64;
constexpr size_t kMaxKeyInPath = 60;
// Objects of up to this many keys are searched for a second one pair by pair.
constexpr size_t kFewKeys = 8;

}  // namespace

class JsonParser {
 public:
  explicit JsonParser(JsonDocument* document) : document_(*document), text_(document->text_) {}

  void document() {
    value(0, JsonNode::Range{0, 0}, 0);
    spaces();
    if (at_ != text_.size()) fail("text after the end of the document");
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    damaged(document_.where_ + ": not valid JSON (" + what + " at byte " + std::to_string(at_) + ")");
  }

  void spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }

  char peek() {
    spaces();
    if (at_ == text_.size()) fail("it ends early");
    return text_[at_];
  }

  void expect(char wanted) {
    if (peek() != wanted) fail("unexpected character");
    ++at_;
  }

  bool word(std::string_view wanted) {
    if (std::string_view(text_).substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  // Reads a value, appends it and returns its number.
  uint32_t value(uint32_t parent, JsonNode::Range key, int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    const uint32_t index = static_cast<uint32_t>(document_.nodes_.size());
    // A deque: the node stays where it is while others follow.
    JsonNode& out = document_.nodes_.emplace_back();
    out.parent = parent;
    out.key_start = key.start;
    out.key_size = key.size & kMaxTextBytes;
    const char first = peek();
    if (first == '{') {
      out.kind = JsonKind::object;
      out.first = 0;
      object(index, &out, depth);
    } else if (first == '[') {
      out.kind = JsonKind::array;
      out.first = 0;
      array(index, &out, depth);
    } else if (first == '"') {
      out.kind = JsonKind::text;
      out.text = string();
    } else if (word("null")) {
      out.kind = JsonKind::null;
    } else if (word("true") || word("false")) {
      out.kind = JsonKind::boolean;
      out.number = first == 't' ? 1 : 0;
    } else {
      out.kind = JsonKind::number;
      out.number = number();
    }
    return index;
  }

  void object(uint32_t index, JsonNode* out, int depth) {
    expect('{');
    if (peek() == '}') {
      ++at_;
      return;
    }
    uint32_t* link = &out->first;
    while (true) {
      if (peek() != '"') fail("a key is not a string");
      const JsonNode::Range key = string();
      expect(':');
      *link = value(index, key, depth + 1);
      link = &document_.nodes_[*link].next;
      if (peek() == '}') break;
      expect(',');
    }
    ++at_;
    refuse_twice(*out);
  }

  void array(uint32_t index, JsonNode* out, int depth) {
    expect('[');
    if (peek() == ']') {
      ++at_;
      return;
    }
    uint32_t* link = &out->first;
    while (true) {
      *link = value(index, JsonNode::Range{0, 0}, depth + 1);
      link = &document_.nodes_[*link].next;
      if (peek() == ']') break;
      expect(',');
    }
    ++at_;
  }

  void refuse_twice(const JsonNode& object) {
    keys_.clear();
    for (uint32_t i = object.first; i != 0; i = document_.nodes_[i].next) keys_.push_back(i);
    const auto key = [this](uint32_t i) { return document_.key(document_.nodes_[i]); };
    if (keys_.size() <= kFewKeys) {
      for (size_t i = 0; i < keys_.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (key(keys_[i]) == key(keys_[j])) fail("duplicate key");
        }
      }
      return;
    }
    std::sort(keys_.begin(), keys_.end(), [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    for (size_t i = 1; i < keys_.size(); ++i) {
      if (key(keys_[i - 1]) == key(keys_[i])) fail("duplicate key");
    }
  }

  double number() {
    const size_t start = at_;
    auto digits = [&] {
      const size_t from = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      if (at_ == from) fail("not a value");
    };
    auto next_is = [&](char c) { return at_ < text_.size() && text_[at_] == c; };
    if (next_is('-')) ++at_;
    if (next_is('0')) {
      ++at_;
    } else {
      digits();
    }
    if (next_is('.')) {
      ++at_;
      digits();
    }
    if (next_is('e') || next_is('E')) {
      ++at_;
      if (next_is('+') || next_is('-')) ++at_;
      digits();
    }
    if (at_ - start > kMaxNumberBytes) fail("a number of more than 64 characters");
    char written[kMaxNumberBytes + 1] = {};
    std::memcpy(written, text_.data() + start, at_ - start);
    const double out = std::strtod(written, nullptr);
    if (!std::isfinite(out)) fail("a number out of range");
    return out;
  }

  uint32_t hex4() {
    if (at_ + 4 > text_.size()) fail("it ends early");
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = text_[at_++];
      out <<= 4;
      if (c >= '0' && c <= '9') {
        out |= static_cast<uint32_t>(c - '0');
      } else if ((c | 32) >= 'a' && (c | 32) <= 'f') {
        out |= static_cast<uint32_t>((c | 32) - 'a' + 10);
      } else {
        fail("a bad \\u escape");
      }
    }
    return out;
  }

  uint32_t escaped_code() {
    uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00) {
      if (!word("\\u")) fail("half a surrogate pair");
      const uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
      fail("half a surrogate pair");
    }
    return code;
  }

  // Decoded in place: no escape is shorter than what it means.
  JsonNode::Range string() {
    ++at_;  // the opening quote, seen by the caller
    const size_t start = at_;
    size_t end = at_;
    std::string held;
    while (true) {
      if (at_ == text_.size()) fail("a string that does not end");
      const unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') break;
      if (c < 0x20) fail("a control character in a string");
      ++at_;
      if (c != '\\') {
        text_[end++] = static_cast<char>(c);
        continue;
      }
      if (at_ == text_.size()) fail("a string that does not end");
      held.clear();
      switch (text_[at_++]) {
        case '"': held = '"'; break;
        case '\\': held = '\\'; break;
        case '/': held = '/'; break;
        case 'b': held = '\b'; break;
        case 'f': held = '\f'; break;
        case 'n': held = '\n'; break;
        case 'r': held = '\r'; break;
        case 't': held = '\t'; break;
        case 'u': append_utf8(escaped_code(), &held); break;
        default: fail("a bad escape");
      }
      for (const char decoded : held) text_[end++] = decoded;
    }
    ++at_;
    return {static_cast<uint32_t>(start), static_cast<uint32_t>(end - start)};
  }

  JsonDocument& document_;
  std::string& text_;
  std::vector<uint32_t> keys_;
  size_t at_ = 0;
};

JsonDocument::JsonDocument(std::string text, std::string where) : text_(std::move(text)), where_(std::move(where)) {
  if (text_.size() > kMaxTextBytes) damaged(where_ + ": larger than this tool reads");
  JsonParser(this).document();
}

const JsonNode& Json::node() const { return document_->nodes_[index_]; }

std::string Json::path() const {
  std::vector<std::string_view> keys;
  // The depth of a document is bounded.
  for (uint32_t i = index_; i != 0; i = document_->nodes_[i].parent) {
    const JsonNode& node = document_->nodes_[i];
    // The members of a list go by its name.
    if (document_->nodes_[node.parent].kind == JsonKind::object) keys.push_back(document_->key(node));
  }
  std::string out = document_->where_;
  for (size_t i = keys.size(); i-- > 0;) {
    out.append(".").append(keys[i].substr(0, kMaxKeyInPath));
    if (keys[i].size() > kMaxKeyInPath) out.append("...");
  }
  return out;
}

void Json::wrong(const char* expected) const { damaged(path() + ": not " + expected); }

JsonKind Json::kind() const { return node().kind; }

bool Json::has(std::string_view key) const {
  for (const auto& [name, value] : object()) {
    if (name == key) return true;
  }
  return false;
}

Json Json::at(std::string_view key) const {
  for (const auto& [name, value] : object()) {
    if (name == key) return value;
  }
  damaged(path() + ": no \"" + std::string(key) + "\" in it");
}

std::string_view Json::text() const {
  if (node().kind != JsonKind::text) wrong("a string");
  return document_->view(node().text.start, node().text.size);
}

double Json::number() const {
  if (node().kind != JsonKind::number) wrong("a number");
  return node().number;
}

int64_t Json::integer() const {
  const double value = number();
  if (value != std::floor(value) || std::fabs(value) > 9007199254740992.0) wrong("a whole number");
  return static_cast<int64_t>(value);
}

bool Json::boolean() const {
  if (node().kind != JsonKind::boolean) wrong("true or false");
  return node().number != 0;
}

Json::Items Json::array() const {
  if (node().kind != JsonKind::array) wrong("a list");
  return {document_, node().first};
}

Json::Members Json::object() const {
  if (node().kind != JsonKind::object) wrong("an object");
  return {document_, node().first};
}

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (byte < 0x20 || byte == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return out;
}

}  // namespace msdc
