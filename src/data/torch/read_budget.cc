#include "data/torch/read_budget.h"

#include <fmt/format.h>

#include "base/error.h"

namespace spillway::data {

void ReadBudget::exceeded(const char* how) const {
  throw Error(ErrorCode::data,
              fmt::format("{}: reading the file {} than the file's {} bytes justify: expected each value to be used only a few "
                          "times, as in files that a training run saves",
                          where_, how, input_));
}

}  // namespace spillway::data
