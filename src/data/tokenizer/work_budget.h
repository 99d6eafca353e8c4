// WorkBudget limits the work that processing one text may cost: the number of steps, each worth about one to ten nanoseconds, and the
// length of the text while it is rewritten. Both limits are proportional to the text's length. A tokenizer file and a text that were made
// to be slow lead to an Error(data) within seconds. Ordinary files and texts need a hundredth of the limits. There is one budget per text
// or stream; it is not thread-safe. enter() says which part of the tokenizer uses the budget.
#pragma once
#include <string>

#include "base/types.h"

namespace spillway::data {

class WorkBudget {
 public:
  static constexpr size_t kStepsPerByte = 2048;
  static constexpr size_t kCallCost = 32;       // the steps charged for a call that allocates memory, however short the text
  static constexpr size_t kStepsAtOnce = 4096;  // the number of steps that inner loops charge at once

  /// Creates the budget of a text of `text_bytes` bytes. `file` is named in errors and must outlive the budget.
  WorkBudget(const std::string& file, size_t text_bytes) : file_(&file) { allow(text_bytes); }

  /// Raises the limits, because `bytes` more bytes of text are to be processed.
  void allow(size_t bytes) {
    text_bytes_ += bytes;
    steps_ += kStepsPerByte * bytes;
  }
  /// Names the part of the tokenizer file that uses the budget from this call on, such
  /// as "normalizer". Error messages show this name. `part` must be a string literal.
  void enter(const char* part) { part_ = part; }

  /// Uses up steps. Throws Error(data) if fewer steps are left.
  void charge(size_t steps) {
    if (!spend(steps)) refuse_steps();
  }
  /// Uses up steps, for callers that cannot throw. Returns false if fewer steps are left.
  bool spend(size_t steps) {
    if (steps > steps_) return false;
    steps_ -= steps;
    return true;
  }
  /// Throws Error(data) if `bytes` is more than the length to which the text may grow when it is rewritten.
  void check_length(size_t bytes) const {
    if (bytes > kGrowth * text_bytes_ + kFreeBytes) refuse_length(bytes);
  }

 private:
  static constexpr size_t kFreeSteps = 1 << 17;
  // The limits on how much longer rewriting may make a text: a factor, and bytes added
  // to it. Unicode's own rules need a factor of 11, byte characters a factor of 2.
  static constexpr size_t kGrowth = 32, kFreeBytes = 65536;
  [[noreturn]] void refuse_steps() const;
  [[noreturn]] void refuse_length(size_t bytes) const;

  const std::string* file_;
  const char* part_ = "model";
  size_t text_bytes_ = 0, steps_ = kFreeSteps;
};

}  // namespace spillway::data
