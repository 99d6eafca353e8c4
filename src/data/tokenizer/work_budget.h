// WorkBudget limits the work that processing one text may cost: steps, each worth about one to ten nanoseconds, and the length of the text
// as it is rewritten. Both limits are proportional to the text. A file and a text crafted to be slow end in an Error(data) within seconds;
// ordinary ones need a hundredth of the limit. There is one budget per text or stream; it is not thread-safe. enter() says which part is
// using it.
#pragma once
#include <string>

#include "base/types.h"

namespace spillway::data {

class WorkBudget {
 public:
  static constexpr size_t kStepsPerByte = 2048;
  static constexpr size_t kCallCost = 32;       // cost of a call that allocates memory, however short the text
  static constexpr size_t kStepsAtOnce = 4096;  // number of steps that inner loops charge at once

  /// `file` is named in errors and must outlive the budget.
  WorkBudget(const std::string& file, size_t text_bytes) : file_(&file) { allow(text_bytes); }

  /// Raises the limits because the text is longer by `bytes` bytes.
  void allow(size_t bytes) {
    text_bytes_ += bytes;
    steps_ += kStepsPerByte * bytes;
  }
  /// Names the part of the file that works from here on, such as "normalizer", for messages. `part` must be a literal.
  void enter(const char* part) { part_ = part; }

  /// Uses up steps. Throws Error(data) if there are not enough.
  void charge(size_t steps) {
    if (!spend(steps)) refuse_steps();
  }
  /// Like charge(), for callers that cannot throw: returns false if there are not enough steps.
  bool spend(size_t steps) {
    if (steps > steps_) return false;
    steps_ -= steps;
    return true;
  }
  /// Throws Error(data) if a rewritten text may not be this long.
  void check_length(size_t bytes) const {
    if (bytes > kGrowth * text_bytes_ + kFreeBytes) refuse_length(bytes);
  }

 private:
  static constexpr size_t kFreeSteps = 1 << 17;
  // By how much rewriting may lengthen a text. Unicode's own rules need a factor of 11, byte characters a factor of 2.
  static constexpr size_t kGrowth = 32, kFreeBytes = 65536;
  [[noreturn]] void refuse_steps() const;
  [[noreturn]] void refuse_length(size_t bytes) const;

  const std::string* file_;
  const char* part_ = "model";
  size_t text_bytes_ = 0, steps_ = kFreeSteps;
};

}  // namespace spillway::data
