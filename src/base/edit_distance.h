// Computes the edit distance of two words, for "did you mean" hints on misspelt names. Pure function; thread-safe.
#pragma once
#include <string_view>

namespace spillway {

/// Returns the fewest edits that turn `a` into `b`. An edit inserts, deletes or replaces a byte or swaps two neighbours; no byte is edited
/// twice (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

}  // namespace spillway
