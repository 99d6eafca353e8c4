// Warns about files that have the name of a text file but do not look like text, since
// a model would learn their contents all the same. Reads only the start of each file.
#pragma once
#include <string>
#include <vector>

namespace spillway::trainer {

/// Returns a warning about the first .txt file, given directly or in a given folder, of which more than 1 % of the
/// bytes read are control characters that text does not contain. The result is empty if there is no such file.
std::string text_notice(const std::vector<std::string>& paths);

}  // namespace spillway::trainer
