// Lanes over time as an SVG of its own, a bar each thing that was done. Pure functions.
#pragma once
#include <string>

#include "app/record/timeline.h"

namespace spillway::app {

/// Every lane of one rank that did anything. `most`: bars in all.
std::string lanes_figure(const Timeline& timeline, size_t rank, const std::string& caption, size_t most);
/// What each rank computed, a row a rank, the number of its micro-batch on a bar.
std::string pipeline_figure(const Timeline& timeline, const std::string& caption, size_t most);

}  // namespace spillway::app
