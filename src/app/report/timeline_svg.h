// Draws a timeline as inline SVG: one row for each lane (executing thread) or rank, one bar for each operation. All functions are pure.
#pragma once
#include <string>

#include "app/names/names.h"
#include "trainer/record/timeline.h"

namespace spillway::app {

/// Draws the lanes (executing threads) of one rank that were ever busy, one row each, with at most `most` bars in all.
std::string lanes_figure(const Timeline& timeline, size_t rank, const std::string& caption, size_t most);
/// Draws what each rank computed, one row for each rank. A bar carries the number of its micro-batch. `most` limits the number of bars in
/// all rows together.
std::string pipeline_figure(const Timeline& timeline, const std::string& caption, size_t most);

}  // namespace spillway::app
