// JsonLine is one line of a JSON Lines file, parsed as an object. The readers of row layouts use it. Its error messages name the file, the
// line and the column. A JsonLine is used by one thread.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "data/rows/json_place.h"

namespace spillway::data {

class JsonLine {
 public:
  using Json = nlohmann::ordered_json;

  /// Parses a line. `line` and `file` must outlive this object. Throws Error(data) if the line is not a JSON object or nests deeper than
  /// 200 levels.
  JsonLine(std::string_view line, const std::string& file, i64 number);
  ~JsonLine();
  JsonLine(const JsonLine&) = delete;
  JsonLine& operator=(const JsonLine&) = delete;

  const Json& json() const { return *json_; }
  /// Moves the value of a key out of the object. The key stays, with the value null.
  Json take(const char* key);

  /// The reject functions throw Error(data) "[data] FILE, line N, column C: <what>". The column is that of the given byte, or
  /// that of the value under `path`. The overload with `expected` says what was expected and of what kind the value `got` is.
  [[noreturn]] void reject(size_t byte, const std::string& what) const;
  [[noreturn]] void reject_at(const JsonPath& path, const std::string& what) const { reject(json_place(line_, path), what); }
  [[noreturn]] void reject(const JsonPath& path, const std::string& expected, const Json* got) const;

  /// Returns the value of a key, or null if the object does not have the key.
  static const Json* find(const Json& object, const char* key);
  /// Returns the value of a key, or null if the key is missing or its value is JSON's null.
  const Json* given(const char* key) const;
  /// Names the kind of a value for error messages, for example "a list" or "a text".
  static std::string shown(const Json& value);

  /// text_in(), list_in() and the like return a text or a list that must be present. They throw if it is missing or of another kind. A
  /// list must have at least one item, and its items must be objects.
  const std::string& text_in(const Json& object, JsonPath path, const char* key) const;
  const std::string& text(const char* key) const { return text_in(*json_, {}, key); }
  const Json& list(const char* key) const;
  /// Returns a text, or "" if the key is missing or its value is null.
  std::string text_if_any(const char* key) const;
  /// Returns a list of whole numbers from `least` to 2^31 - 1. If `booleans` is set, `true` and `false` count as 1 and 0.
  std::vector<i64> numbers(const char* key, i64 least, bool booleans = false) const;

 private:
  std::string_view line_;
  const std::string& file_;
  i64 number_;
  std::unique_ptr<Json> json_;
};

}  // namespace spillway::data
