// What the work on one text may cost: steps, each worth about a nanosecond to ten, and bytes of the text as it is rewritten, both in
// proportion to the text. A file and a text that were made to be slow end in an Error(data) within seconds; honest ones need a hundredth
// of it. One budget per text or stream, not thread-safe; where it is spent is told by enter().
#pragma once
#include <string>

#include "base/types.h"

namespace spillway::data {

class WorkBudget {
 public:
  static constexpr size_t kStepsPerByte = 2048;
  static constexpr size_t kCallCost = 32;       // what a call that asks for memory costs, however short the text
  static constexpr size_t kStepsAtOnce = 4096;  // that inner loops charge together

  /// `file` is named in errors and outlives the budget.
  WorkBudget(const std::string& file, size_t text_bytes) : file_(&file) { allow(text_bytes); }

  /// The text is longer by so many bytes.
  void allow(size_t bytes) {
    text_bytes_ += bytes;
    steps_ += kStepsPerByte * bytes;
  }
  /// The part of the file that works from here on, such as "normalizer", for messages; a literal.
  void enter(const char* part) { part_ = part; }

  /// Errors: Error(data) when the steps are used up.
  void charge(size_t steps) {
    if (!spend(steps)) refuse_steps();
  }
  /// The same for callers that cannot throw; false when the steps are used up.
  bool spend(size_t steps) {
    if (steps > steps_) return false;
    steps_ -= steps;
    return true;
  }
  /// Errors: Error(data) if a text that was rewritten may not be this long.
  void check_length(size_t bytes) const {
    if (bytes > kGrowth * text_bytes_ + kFreeBytes) refuse_length(bytes);
  }

 private:
  static constexpr size_t kFreeSteps = 1 << 17;
  // How much longer rewriting may make a text. Unicode's own rules need a factor of 11, and byte characters one of 2.
  static constexpr size_t kGrowth = 32, kFreeBytes = 65536;
  [[noreturn]] void refuse_steps() const;
  [[noreturn]] void refuse_length(size_t bytes) const;

  const std::string* file_;
  const char* part_ = "model";
  size_t text_bytes_ = 0, steps_ = kFreeSteps;
};

}  // namespace spillway::data
