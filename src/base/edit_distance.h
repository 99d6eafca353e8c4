// How far a misspelt word is from one that is known: what "did you mean" asks. Thread-safe: a pure function.
#pragma once
#include <string_view>

namespace spillway {

/// The fewest edits that make `b` of `a`: insert, delete, replace, or swap two neighbours, no letter edited twice (optimal string
/// alignment). Bytes are letters.
int edit_distance(std::string_view a, std::string_view b);

}  // namespace spillway
