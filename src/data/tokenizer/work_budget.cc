#include "data/tokenizer/work_budget.h"

#include "base/error.h"

namespace spillway::data {

void WorkBudget::refuse_steps() const {
  throw Error(ErrorCode::data, "[tokenizer] expected the " + std::string(part_) + " in " + *file_ + " to need at most " +
                                   std::to_string(kStepsPerByte) + " steps for each byte of a text, got more in a text of " +
                                   std::to_string(text_bytes_) + " bytes; use a tokenizer.json with fewer steps and shorter tokens");
}

void WorkBudget::refuse_length(size_t bytes) const {
  throw Error(ErrorCode::data, "[tokenizer] expected the " + std::string(part_) + " in " + *file_ + " to make a text of " +
                                   std::to_string(text_bytes_) + " bytes at most " + std::to_string(kGrowth * text_bytes_ + kFreeBytes) +
                                   " bytes long, got " + std::to_string(bytes) +
                                   "; use a tokenizer.json whose Replace and Prepend steps add less text");
}

}  // namespace spillway::data
