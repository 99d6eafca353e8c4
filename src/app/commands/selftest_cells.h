// Lists the training runs of `spillway selftest`. A cell is one run: a tiny model with one placement and
// sharding. Placements and shardings must not change a bit of the result, so all cells of a family must give the
// same numbers. Each cell is compared with the first cell of its family. The types are plain values; thread-safe.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

struct SelftestCell {
  std::string family;              // name of the family, such as "1 data-parallel rank"
  std::string name;                // the placement, such as "everything on nvme"
  std::vector<std::string> flags;  // flags of train, in addition to those that all cells share
};

/// Returns the cells; each family's first cell comes before its others. `folder` holds text.txt, rows.jsonl, experts
/// (a model's config.json) and base (a model with weights). The cells may also write their nvme files to `folder`.
std::vector<SelftestCell> selftest_cells(const std::string& folder);

}  // namespace spillway::app
