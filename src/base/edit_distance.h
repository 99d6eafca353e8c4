// Finds the words that a misspelt or shortened word probably means, for "did you mean" hints. Pure functions; thread-safe.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// Returns the fewest edits that turn `a` into `b`. An edit inserts, deletes or replaces a byte or swaps two neighbours; no byte is edited
/// twice (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

/// Returns the known words that `word` probably means, at most four. Case, dashes and underscores do not count. If a known word is then
/// equal, it is the only result. Otherwise the results are the known words that begin with `word`, if it has three letters or more.
/// If there are none, they are the words the fewest edits away, up to a third of the longer word's length. The result is empty if all
/// words are farther away.
std::vector<std::string> nearest_words(std::string_view word, const std::vector<std::string>& known);

/// Joins words as alternatives: "a", "a or b", "a, b or c".
std::string either_of(const std::vector<std::string>& words);

}  // namespace spillway
