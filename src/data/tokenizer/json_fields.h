// Reading the JSON objects of a tokenizer's files: every value is checked for its type and range, and what nobody asked for is refused, so
// that nothing in a file is passed over in silence. Errors: Error(data) names the key, what stands there, and the file.
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

/// What a file may still have of what each text goes through, or what takes long to make ready.
struct PartsLeft {
  i64 steps = 1024;           // of normalizers, pre-tokenizers and decoders
  i64 pattern_bytes = 16384;  // of regular expressions
};

/// A place in a file, for messages: the file, and keys joined by points. Places of one file share what it may still have.
struct JsonPlace {
  std::string file, key;
  std::shared_ptr<PartsLeft> left = std::make_shared<PartsLeft>();
  JsonPlace below(std::string_view name) const;
  /// Errors: Error(data) if the file has too much of it.
  void take_step() const;
  void take_pattern(size_t bytes) const;
};

/// Throws Error(data): "[tokenizer] expected <expected> as <key>, got <value>, in <file>".
[[noreturn]] void refuse_json(const JsonPlace& place, const std::string& expected, const nlohmann::json& got);
[[noreturn]] void refuse_value(const JsonPlace& place, const std::string& expected, const std::string& got);

/// The value if it is a whole number from 0 to `most`.
std::optional<i64> whole_number(const nlohmann::json& value, i64 most);

/// The whole file parsed. Errors: Error(data) if it cannot be read, is over 1 GiB or no JSON.
nlohmann::json read_json(const std::filesystem::path& file);

class Fields {
 public:
  Fields(const nlohmann::json& object, JsonPlace place);

  const JsonPlace& place() const { return place_; }
  JsonPlace place_of(std::string_view key) const { return place_.below(key); }
  /// Null where the key is missing or holds null.
  const nlohmann::json* find(const char* key);
  /// What must be there and not null.
  const nlohmann::json& at(const char* key, const char* expected);

  std::string text(const char* key);
  std::optional<std::string> text_if_any(const char* key);
  char32_t character(const char* key);
  bool flag(const char* key, std::optional<bool> otherwise = {});
  i64 number(const char* key, i64 least, i64 most, std::optional<i64> otherwise = {});
  /// Keys that say nothing to this program.
  void pass_over(std::initializer_list<const char*> keys) { used_.insert(keys.begin(), keys.end()); }
  /// Refuses keys that were not asked for, but those that hold null or false.
  void refuse_the_rest() const;

 private:
  const nlohmann::json& object_;
  JsonPlace place_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace spillway::data
