// Reads one JSON object of an untrusted configuration, key by key. Every error names the file, the
// key, what was expected and what was found. Only config* and lora_config.cc use this header.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/types.h"

namespace spillway::models {

/// Parses `text`, the content of `file`, which must be a JSON object. If it is not JSON (reported with
/// line and column) or not an object, throws an Error(data) whose message begins with `what` in brackets.
nlohmann::json parse_object(std::string_view text, const std::string& file, const char* what);

class ConfigObject {
 public:
  /// Creates a reader of `object`, which must outlive the reader. `prefix`
  /// is put before key names in error messages, for example "rope_scaling.".
  ConfigObject(const nlohmann::json& object, std::string file, std::string prefix = "")
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  /// Returns whether the key is present. A null value counts as absent, as in transformers.
  bool has(const char* key) const;
  const nlohmann::json* find(const char* key) const;  // returns the key's value; null when the key is absent
  const nlohmann::json& object() const { return object_; }
  const std::string& file() const { return file_; }

  /// Returns a whole number in [low, high]. A missing key without a fallback is an error.
  i64 whole(const char* key, i64 low, i64 high, std::optional<i64> fallback = {}) const;
  /// Returns a finite number x with low <= x <= high. If `above` is set, x must be above low.
  double real(const char* key, double low, double high, std::optional<double> fallback = {}, bool above = false) const;
  /// Returns the key's value, a number of at least 0 and below 1, or `fallback` when the key is absent.
  double share(const char* key, double fallback) const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, std::optional<std::string> fallback = {}) const;

  /// Throws an Error(data) that names `key`, what was expected and what the object holds.
  [[noreturn]] void complain(const std::string& key, const std::string& expected) const;

 private:
  [[noreturn]] void missing(const char* key, const std::string& expected) const;
  const nlohmann::json& object_;
  std::string file_, prefix_;
};

}  // namespace spillway::models
