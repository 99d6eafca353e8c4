// Draws a line chart over the steps of a run as inline SVG. The page's style sheet colours the chart by class names. All functions are
// pure.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "app/report/axis.h"
#include "app/report/series.h"

namespace spillway::app {

struct ChartLine {
  std::string name;
  std::vector<Point> points;
  int colour = 0;  // index of the line's colour; less than kLineColours
  bool dashed = false, marked = false;
};

struct Chart {
  std::string title, what;  // `what` is one sentence that describes the chart to screen readers
  Unit unit = Unit::number;
  std::vector<ChartLine> lines;
  struct Limit {
    std::string name;
    double value = 0;
    bool below = false;  // whether the limit's name is written below its line; otherwise above it
  };
  std::vector<Limit> limits;  // horizontal lines that mark limits; a limit far above the data is only named in the legend
  bool from_zero = false;
  std::optional<bool> log;  // true: logarithmic axis; empty: logarithmic only if a few values dwarf the others
  struct Piece {
    double first = 0, last = 0;
    std::string kind;
  };
  std::vector<Piece> strip;  // coloured strip below the lines: which resource limited which steps
};

constexpr int kLineColours = 6;

/// Returns a figure element with caption, legend and SVG. Returns an empty text if no line has a point.
std::string figure(const Chart& chart);
/// Returns the CSS class that colours a kind of work or a resource in strips and timelines: "k-compute" for "compute".
std::string kind_class(const std::string& kind);

}  // namespace spillway::app
