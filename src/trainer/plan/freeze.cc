#include "trainer/plan/freeze.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include "base/error.h"

namespace spillway::trainer {
namespace {

bool names(const std::string& pattern, const std::string& parameter) {
  const bool module =
      parameter.size() > pattern.size() && parameter.compare(0, pattern.size(), pattern) == 0 && parameter[pattern.size()] == '.';
  return module || parameter == pattern || ::fnmatch(pattern.c_str(), parameter.c_str(), 0) == 0;
}

[[noreturn]] void refuse_unknown(const nn::Sequential& model, const std::string& pattern) {
  std::string close;  // a parameter whose name contains the pattern, for the error message; users often give only a part of a name
  for (const auto& p : model.parameters) {
    if (close.empty() && p->name.find(pattern) != std::string::npos) close = p->name;
  }
  const std::string& example = close.empty() ? model.parameters.front()->name : close;
  throw Error(
      ErrorCode::usage,
      fmt::format(
          "[--freeze] expected the name of a parameter or module, or a glob, but \"{}\" matches none of this model's {} parameters, "
          "such as {}{}",
          pattern, model.parameters.size(), example, close.empty() ? "" : fmt::format(": try '*{}*'", pattern)));
}

}  // namespace

void freeze_parameters(nn::Sequential& model, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool found = false;
    for (const auto& p : model.parameters) {
      if (!names(pattern, p->name)) continue;
      p->frozen = true;
      found = true;
    }
    if (!found) refuse_unknown(model, pattern);
  }
  if (frozen_elems(model) == model.parameter_elems())
    throw Error(ErrorCode::usage, "[--freeze] expected at least one parameter left to train, but the patterns match every parameter");
}

i64 frozen_elems(const nn::Sequential& model) {
  i64 elems = 0;
  for (const auto& p : model.parameters) elems += p->frozen && !p->statistic ? p->elems() : 0;
  return elems;
}

}  // namespace spillway::trainer
