// A small strict JSON reader for bundle.json and golden.json: bounded depth and size, no extensions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace msdc {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json, std::less<>>;

  // Parse a whole document. `where` names the file in messages. Throws Failure(MSDC_DAMAGED).
  static Json parse(std::string_view text, const std::string& where);

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool has(std::string_view key) const;

  // Typed access; a missing key or another type throws Failure(MSDC_DAMAGED) with the path of the value.
  const Json& at(std::string_view key) const;
  const std::string& text() const;
  double number() const;
  int64_t integer() const;  // a number without a fraction, inside +-2^53
  bool boolean() const;
  const Array& array() const;
  const Object& object() const;

 private:
  friend class JsonParser;
  [[noreturn]] void wrong(const char* expected) const;

  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value_ = nullptr;
  std::string path_;  // kept only by objects' and the root's children: short, and worth a clear message
};

// Text as a JSON string with its quotes.
std::string json_quote(std::string_view text);

}  // namespace msdc
