// Reads values from a DeepSpeed configuration by their paths, and collects the flags that they become.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/names.h"
#include "trainer/settings/given.h"

namespace spillway::app {

class DeepspeedReader {
 public:
  using Json = nlohmann::ordered_json;
  DeepspeedReader(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  /// Returns the value at a path such as "optimizer.params.lr". Null if there is none, or it is null or "auto".
  const Json* find(const std::string& path) const;
  bool is_auto(const std::string& path) const;
  /// Return the value at `path`. Empty (or `otherwise`) where find() returns null. Throw Error(usage) if it has another type.
  std::optional<double> number(const std::string& path) const;
  std::optional<i64> integer(const std::string& path) const;
  std::optional<std::string> text(const std::string& path) const;
  bool flag(const std::string& path, bool otherwise = false) const;
  /// Returns how messages name the key: "optimizer.type in ds.json".
  std::string what(const std::string& path) const { return path + " in " + where_; }
  [[noreturn]] void refuse_value(const std::string& path, const std::string& expected) const;
  const std::string& where() const { return where_; }

  /// Sets a flag. `because` is the path of the key from which it follows; messages name it.
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

/// Translate the sections "optimizer" and "scheduler".
void take_optimizer(DeepspeedReader& file);
void take_schedule(DeepspeedReader& file);

}  // namespace spillway::app
