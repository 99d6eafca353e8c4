// Lists what selftest trains: tiny models with placements and shardings that must not change a bit of the result. All cells of a family
// must give the same numbers; the others are compared with the first. Values; thread-safe.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

struct SelftestCell {
  std::string family;              // cells with equal numbers: "1 data-parallel rank"
  std::string name;                // the placement: "everything on nvme"
  std::vector<std::string> flags;  // flags of train, in addition to those that all cells share
};

/// Returns the cells; each family's first cell comes before its others. `folder` holds text.txt, rows.jsonl, experts (a model's
/// config.json) and base (a model with weights); nvme files may lie there, too.
std::vector<SelftestCell> selftest_cells(const std::string& folder);

}  // namespace spillway::app
