// One line of JSON Lines as an object, and complaints about it that name file, line and column: what the layouts of rows are read from.
// Values; one thread.
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

  /// `line` and `file` must outlive it. Error(data): the line is no JSON object, or nests deeper than 200.
  JsonLine(std::string_view line, const std::string& file, i64 number);
  ~JsonLine();
  JsonLine(const JsonLine&) = delete;
  JsonLine& operator=(const JsonLine&) = delete;

  const Json& json() const { return *json_; }
  /// Moves the value of a key out of the object; the key stays.
  Json take(const char* key);

  /// Throws Error(data) "[data] FILE, line N, column C: <what>", of the byte, of the value under `path`, or of what was got in its place.
  [[noreturn]] void reject(size_t byte, const std::string& what) const;
  [[noreturn]] void reject_at(const JsonPath& path, const std::string& what) const { reject(json_place(line_, path), what); }
  [[noreturn]] void reject(const JsonPath& path, const std::string& expected, const Json* got) const;

  /// The value of a key that is there.
  static const Json* find(const Json& object, const char* key);
  /// The value of a key that is there and not null.
  const Json* given(const char* key) const;
  /// "a list", "a text": what a value is, for complaints.
  static std::string shown(const Json& value);

  /// Texts and lists that must be there. A list's items must be objects, and at least one.
  const std::string& text_in(const Json& object, JsonPath path, const char* key) const;
  const std::string& text(const char* key) const { return text_in(*json_, {}, key); }
  const Json& list(const char* key) const;
  /// A text, or "" where the key is not there or null.
  std::string text_if_any(const char* key) const;
  /// A list of whole numbers from `least` to 2^31 - 1; `true` and `false` are 1 and 0 where `booleans` says so.
  std::vector<i64> numbers(const char* key, i64 least, bool booleans = false) const;

 private:
  std::string_view line_;
  const std::string& file_;
  i64 number_;
  std::unique_ptr<Json> json_;
};

}  // namespace spillway::data
