#include "parallel/plan/state_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace spillway::parallel {

std::string state_text(const optim::StateFormat& format) {
  std::vector<const char*> parts, beside;
  if (is_half(format.weight)) parts.push_back("master");
  for (const optim::StateArrayName& array : state_array_names(format.rule)) parts.push_back(array.brief);
  if (is_of_matrices(format.rule)) {
    for (const optim::StateArrayName& array : state_array_names(format.beside_matrices().rule)) beside.push_back(array.brief);
  }
  std::string other = beside.empty() ? "" : fmt::format(" or {}", fmt::join(beside, ", "));
  if (is_of_parameters(format.rule)) other = " or its means";
  return fmt::format("optimizer state ({}{}{})", fmt::join(parts, ", "), other, format.average ? ", average" : "");
}

}  // namespace spillway::parallel
