// ReadBudget limits the work and memory that reading an untrusted file may take. In formats with references, a few bytes can refer to a
// large value and so make a reader visit or copy that value any number of times. So readers of such formats charge every visit and every
// copy to a ReadBudget. Both limits grow with the bytes read. Files that were not made to attack a reader use a fraction of them, whatever
// their size. An object is used by one thread.
#pragma once
#include <algorithm>
#include <string>

#include "base/types.h"

namespace spillway::data {

/// The approximate bytes that a std::map takes for each entry, in addition to those of the key and value.
constexpr u64 kMapNodeBytes = 32;

class ReadBudget {
 public:
  static constexpr u64 kStepsOfAny = u64{1} << 22, kStepsPerByte = 32;
  static constexpr u64 kHeldOfAny = u64{4} << 20, kHeldPerByte = 16, kMostHeld = u64{512} << 20;

  /// Creates a budget. `where` begins every error message, for example "[torch] model.bin".
  explicit ReadBudget(std::string where, u64 input_bytes = 0) : where_(std::move(where)) { add_input(input_bytes); }

  /// Raises the limits on steps and on memory, because `bytes` more bytes of input are read.
  void add_input(u64 bytes) {
    constexpr u64 kEnough = u64{1} << 50;  // more bytes than any file has; the limit keeps the products below from overflowing
    input_ = std::min(kEnough, input_ + std::min(kEnough, bytes));
    most_steps_ = kStepsOfAny + kStepsPerByte * input_;
    most_held_ = std::min(kMostHeld, kHeldOfAny + kHeldPerByte * input_);
  }
  /// Charges steps of work; a step is a value visited or a byte compared. Throws Error(data) if the total exceeds kStepsOfAny plus
  /// kStepsPerByte for each byte of input.
  void spend(u64 steps) {
    if (steps > most_steps_ - steps_) exceeded("visits its values more often");
    steps_ += steps;
  }
  /// Charges bytes that are kept in memory. Throws Error(data) if the total exceeds kMostHeld, or kHeldOfAny plus kHeldPerByte for each
  /// byte of input.
  void hold(u64 bytes) {
    if (bytes > most_held_ - held_) exceeded("takes more memory");
    held_ += bytes;
  }

  u64 steps() const { return steps_; }
  u64 held() const { return held_; }

 private:
  [[noreturn]] void exceeded(const char* how) const;

  std::string where_;
  u64 input_ = 0, steps_ = 0, held_ = 0, most_steps_ = 0, most_held_ = 0;
};

}  // namespace spillway::data
