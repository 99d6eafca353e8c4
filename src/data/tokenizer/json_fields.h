// Reads the JSON objects of a tokenizer's files. Every value is checked for type and range. Keys that the reader did not ask for are
// refused, so that nothing in a file is ignored silently. Errors are Error(data) and name the key, its value and the file.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::data {

/// Limits two costly things that the unread rest of a tokenizer file may contain: steps, through which every text passes, and regular
/// expressions, which take long to prepare.
struct PartsLeft {
  i64 steps = 1024;           // the number of normalizer, pre-tokenizer and decoder steps
  i64 pattern_bytes = 16384;  // the total length of regular expressions in bytes
};

/// A position in a file, for error messages. It consists of the file's name and the keys that lead to the position, joined by dots. All
/// places of one file share the limits on what the unread rest of the file may contain (PartsLeft).
struct JsonPlace {
  std::string file, key;
  std::shared_ptr<PartsLeft> left = std::make_shared<PartsLeft>();
  JsonPlace below(std::string_view name) const;
  /// take_step() and take_pattern() reduce what the rest of the file may contain (PartsLeft). They throw Error(data) if a limit is
  /// exceeded.
  void take_step() const;
  void take_pattern(size_t bytes) const;
};

/// Throws Error(data) "[tokenizer] expected <expected> as <key>, got <value>, in <file>".
[[noreturn]] void refuse_json(const JsonPlace& place, const std::string& expected, const nlohmann::json& got);
[[noreturn]] void refuse_value(const JsonPlace& place, const std::string& expected, const std::string& got);

/// Returns the number in `value` if it is a whole number from 0 to `most`, and nothing otherwise.
std::optional<i64> whole_number(const nlohmann::json& value, i64 most);

/// Reads and parses a whole JSON file. Throws Error(data) if the file cannot be read, is larger than 1 GiB, or is not JSON.
nlohmann::json read_json(const std::filesystem::path& file);

class Fields {
 public:
  Fields(const nlohmann::json& object, JsonPlace place);

  const JsonPlace& place() const { return place_; }
  JsonPlace place_of(std::string_view key) const { return place_.below(key); }
  /// Returns the value of a key, or null if the key is missing or holds null.
  const nlohmann::json* find(const char* key);
  /// Returns the value of a key. Throws if the key is missing or holds null; the message then says `expected`.
  const nlohmann::json& at(const char* key, const char* expected);

  std::string text(const char* key);
  std::optional<std::string> text_if_any(const char* key);
  char32_t character(const char* key);
  bool flag(const char* key, std::optional<bool> otherwise = {});
  i64 number(const char* key, i64 least, i64 most, std::optional<i64> otherwise = {});
  /// Marks keys that this program ignores on purpose, so that refuse_the_rest() does not refuse them.
  void pass_over(std::initializer_list<const char*> keys) { used_.insert(keys.begin(), keys.end()); }
  /// Throws Error(data) if the object has a key that neither find(), at() nor pass_over() was called with. Keys that hold null or false
  /// are allowed.
  void refuse_the_rest() const;

 private:
  const nlohmann::json& object_;
  JsonPlace place_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace spillway::data
