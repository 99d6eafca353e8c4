// Values of a DeepSpeed configuration by their paths, and the flags they become.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/flags/given.h"

namespace spillway::app {

class DeepspeedReader {
 public:
  using Json = nlohmann::ordered_json;
  DeepspeedReader(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  /// Of "optimizer.params.lr"; null where there is none, it is null, or "auto" (which a value can never be).
  const Json* find(const std::string& path) const;
  bool is_auto(const std::string& path) const;
  /// None where there is none. Throw Error(usage) on another type.
  std::optional<double> number(const std::string& path) const;
  std::optional<i64> integer(const std::string& path) const;
  std::optional<std::string> text(const std::string& path) const;
  bool flag(const std::string& path, bool otherwise = false) const;
  /// "optimizer.type in ds.json".
  std::string what(const std::string& path) const { return path + " in " + where_; }
  [[noreturn]] void refuse_value(const std::string& path, const std::string& expected) const;
  const std::string& where() const { return where_; }

  /// The flag, because of the key.
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

/// Of "optimizer" and "scheduler".
void take_optimizer(DeepspeedReader& file);
void take_schedule(DeepspeedReader& file);

}  // namespace spillway::app
