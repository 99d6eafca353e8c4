// A chart of lines over the steps as an SVG of its own, that a page styles by classes. Pure functions.
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
  int colour = 0;  // of the page's kLineColours
  bool dashed = false, faint = false, marked = false;
};

struct Chart {
  std::string title, what;  // what: one sentence for who cannot see it
  Unit unit = Unit::number;
  std::vector<ChartLine> lines;
  struct Limit {
    std::string name;
    double value = 0;
    bool below = false;  // where its name stands
  };
  std::vector<Limit> limits;  // drawn where they are near what is drawn, else only named in the legend
  bool from_zero = false;
  std::optional<bool> log;  // empty: where a few values dwarf the others
  struct Piece {
    double first = 0, last = 0;
    std::string kind;
  };
  std::vector<Piece> strip;  // below the lines, what went on
};

constexpr int kLineColours = 6;

/// A figure with caption, legend and SVG; empty where no line has a point.
std::string figure(const Chart& chart);
/// The class of a kind of work or resource in strips and timelines: "k-compute".
std::string kind_class(const std::string& kind);

}  // namespace spillway::app
