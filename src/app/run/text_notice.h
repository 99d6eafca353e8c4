// A question about data that are named as text and do not look like it: a model learns whatever it is given. Reads a little of each file.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

/// One line about the first .txt file, given or in a folder given, of which more than one byte in a hundred is a control character that
/// texts do not have; else empty.
std::string text_notice(const std::vector<std::string>& paths);

}  // namespace spillway::app
