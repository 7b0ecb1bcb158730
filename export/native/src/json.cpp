#include "json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "failure.h"
#include "utf8.h"

namespace msdc {

namespace {
constexpr int kMaxDepth = 64;
}

class JsonParser {
 public:
  JsonParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  Json document() {
    Json value = this->value(where_, 0);
    spaces();
    if (at_ != text_.size()) fail("text after the end of the document");
    return value;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    damaged(where_ + ": not valid JSON (" + what + " at byte " + std::to_string(at_) + ")");
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
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  Json value(const std::string& path, int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    Json out;
    out.path_ = path;
    const char first = peek();
    if (first == '{') {
      out.value_ = object(path, depth);
    } else if (first == '[') {
      out.value_ = array(path, depth);
    } else if (first == '"') {
      out.value_ = string();
    } else if (word("null")) {
      out.value_ = nullptr;
    } else if (word("true")) {
      out.value_ = true;
    } else if (word("false")) {
      out.value_ = false;
    } else {
      out.value_ = number();
    }
    return out;
  }

  Json::Object object(const std::string& path, int depth) {
    Json::Object out;
    expect('{');
    if (peek() == '}') {
      ++at_;
      return out;
    }
    while (true) {
      if (peek() != '"') fail("a key is not a string");
      std::string key = string();
      expect(':');
      Json inner = value(path + "." + key, depth + 1);
      if (!out.emplace(std::move(key), std::move(inner)).second) fail("a key stands twice");
      if (peek() == '}') break;
      expect(',');
    }
    ++at_;
    return out;
  }

  Json::Array array(const std::string& path, int depth) {
    Json::Array out;
    expect('[');
    if (peek() == ']') {
      ++at_;
      return out;
    }
    while (true) {
      out.push_back(value(path, depth + 1));
      if (peek() == ']') break;
      expect(',');
    }
    ++at_;
    return out;
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
    if (at_ - start > 64) fail("a number of more than 64 characters");
    const double out = std::strtod(std::string(text_.substr(start, at_ - start)).c_str(), nullptr);
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

  std::string string() {
    std::string out;
    ++at_;  // the opening quote, seen by the caller
    while (true) {
      if (at_ == text_.size()) fail("a string that does not end");
      const unsigned char c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') break;
      if (c < 0x20) fail("a control character in a string");
      ++at_;
      if (c != '\\') {
        out.push_back(static_cast<char>(c));
        continue;
      }
      if (at_ == text_.size()) fail("a string that does not end");
      switch (text_[at_++]) {
        case '"': out.push_back('"'); break;
        case '\\': out.push_back('\\'); break;
        case '/': out.push_back('/'); break;
        case 'b': out.push_back('\b'); break;
        case 'f': out.push_back('\f'); break;
        case 'n': out.push_back('\n'); break;
        case 'r': out.push_back('\r'); break;
        case 't': out.push_back('\t'); break;
        case 'u': {
          uint32_t code = hex4();
          if (code >= 0xD800 && code < 0xDC00) {
            if (!word("\\u")) fail("half a surrogate pair");
            const uint32_t low = hex4();
            if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
          } else if (code >= 0xDC00 && code <= 0xDFFF) {
            fail("half a surrogate pair");
          }
          append_utf8(code, &out);
          break;
        }
        default: fail("a bad escape");
      }
    }
    ++at_;
    return out;
  }

  std::string_view text_;
  std::string where_;
  size_t at_ = 0;
};

Json Json::parse(std::string_view text, const std::string& where) { return JsonParser(text, where).document(); }

void Json::wrong(const char* expected) const { damaged(path_ + ": not " + expected); }

bool Json::has(std::string_view key) const { return object().find(key) != object().end(); }

const Json& Json::at(std::string_view key) const {
  const auto found = object().find(key);
  if (found == object().end()) damaged(path_ + ": no \"" + std::string(key) + "\" in it");
  return found->second;
}

const std::string& Json::text() const {
  if (const auto* value = std::get_if<std::string>(&value_)) return *value;
  wrong("a string");
}

double Json::number() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  wrong("a number");
}

int64_t Json::integer() const {
  const double value = number();
  if (value != std::floor(value) || std::fabs(value) > 9007199254740992.0) wrong("a whole number");
  return static_cast<int64_t>(value);
}

bool Json::boolean() const {
  if (const auto* value = std::get_if<bool>(&value_)) return *value;
  wrong("true or false");
}

const Json::Array& Json::array() const {
  if (const auto* value = std::get_if<Array>(&value_)) return *value;
  wrong("a list");
}

const Json::Object& Json::object() const {
  if (const auto* value = std::get_if<Object>(&value_)) return *value;
  wrong("an object");
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
