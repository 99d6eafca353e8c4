// Draws a line chart over the steps of a run as inline SVG. The page's style sheet colours it by class names. Pure functions.
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
  int colour = 0;  // index of the line's colour, below kLineColours
  bool dashed = false, marked = false;
};

struct Chart {
  std::string title, what;  // what: one sentence that describes the chart to screen readers
  Unit unit = Unit::number;
  std::vector<ChartLine> lines;
  struct Limit {
    std::string name;
    double value = 0;
    bool below = false;  // its name is written below the line, else above it
  };
  std::vector<Limit> limits;  // horizontal lines; one far above the data is named in the legend only
  bool from_zero = false;
  std::optional<bool> log;  // logarithmic axis; if empty, it is used when a few values dwarf the others
  struct Piece {
    double first = 0, last = 0;
    std::string kind;
  };
  std::vector<Piece> strip;  // coloured strip below the lines: which resource limited which steps
};

constexpr int kLineColours = 6;

/// Returns a figure element with caption, legend and SVG; empty if no line has a point.
std::string figure(const Chart& chart);
/// Returns the CSS class that colours a kind of work or a resource in strips and timelines: "k-compute" for "compute".
std::string kind_class(const std::string& kind);

}  // namespace spillway::app
