// Draws a timeline as inline SVG: one row for each lane or rank, one bar for each operation. Pure functions.
#pragma once
#include <string>

#include "app/names.h"
#include "trainer/record/timeline.h"

namespace spillway::app {

/// Draws the lanes of one rank that were busy, one row each, with at most `most` bars in all.
std::string lanes_figure(const Timeline& timeline, size_t rank, const std::string& caption, size_t most);
/// Draws what each rank computed, one row for each rank. A bar carries the number of its micro-batch. `most` limits the bars in all.
std::string pipeline_figure(const Timeline& timeline, const std::string& caption, size_t most);

}  // namespace spillway::app
