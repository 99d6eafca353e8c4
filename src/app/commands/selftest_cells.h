// What selftest trains: tiny models under ways to place and split them that must not change a bit. Cells of one family have the same
// numbers; its first cell is the one the others are held against. Values; thread-safe.
#pragma once
#include <string>
#include <vector>

namespace spillway::app {

struct SelftestCell {
  std::string family;              // "1 data-parallel rank"
  std::string name;                // "everything on nvme"
  std::vector<std::string> flags;  // of train, beside those all cells share
};

/// Every family's first cell before its others. `folder`: where text.txt, rows.jsonl, experts (a model's config.json) and base (a model
/// with weights) are, and what lies on nvme may.
std::vector<SelftestCell> selftest_cells(const std::string& folder);

}  // namespace spillway::app
