#include "data/weights/transposed.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace spillway::data {

void read_transposed(i64 rows, i64 columns, const MatrixValues& values, i64 begin, i64 count, std::span<float> out) {
  require(begin >= 0 && count >= 0 && begin + count <= columns && static_cast<i64>(out.size()) == count * rows,
          "[transposed] expected a range of rows inside the transposed matrix");
  std::vector<double> piece(static_cast<size_t>(count));
  for (i64 row = 0; row < rows; ++row) {
    values(row * columns + begin, piece);
    for (i64 i = 0; i < count; ++i) out[static_cast<size_t>(i * rows + row)] = static_cast<float>(piece[static_cast<size_t>(i)]);
  }
}

i64 transposed_band(i64 rows) { return std::max<i64>(1, 4 * kMiB / std::max<i64>(1, rows)); }

}  // namespace spillway::data
