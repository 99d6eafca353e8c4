// Reads values from a DeepSpeed configuration by their paths, and collects the flags that the values become.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trainer/settings/given.h"

namespace spillway::trainer {

class DeepspeedReader {
 public:
  using Json = nlohmann::ordered_json;
  DeepspeedReader(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  /// Returns the value at a path such as "optimizer.params.lr". Returns null if there is no value, or if the value is null or "auto".
  const Json* find(const std::string& path) const;
  bool is_auto(const std::string& path) const;
  /// Return the value at `path`, converted to the return type. If find() returns null, the
  /// result is empty (or `otherwise`). Throw Error(usage) if the value has another type.
  std::optional<double> number(const std::string& path) const;
  std::optional<i64> integer(const std::string& path) const;
  std::optional<std::string> text(const std::string& path) const;
  bool flag(const std::string& path, bool otherwise = false) const;
  /// Returns the name of a key in messages, such as "optimizer.type in ds.json".
  std::string what(const std::string& path) const { return path + " in " + where_; }
  [[noreturn]] void refuse_value(const std::string& path, const std::string& expected) const;
  const std::string& where() const { return where_; }

  /// Sets a flag. `because` is the path of the key from which the flag follows; messages name this key.
  void give(const std::string& flag, const std::string& text, const std::string& because);
  void give(const std::string& flag, double value, const std::string& because);
  void note(std::string line) { notes.push_back(std::move(line)); }

  GivenMap given;
  std::vector<std::string> notes;

 private:
  const Json* at(const std::string& path) const;
  const Json& root_;
  const std::string where_;
};

/// take_optimizer() translates the section "optimizer", take_schedule() the section "scheduler".
void take_optimizer(DeepspeedReader& file);
void take_schedule(DeepspeedReader& file);

}  // namespace spillway::trainer
