#include "optim/isa.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace spillway::optim::isa_test {
namespace {

TEST(Isa, BestIsTheLastAvailable) {
  const auto available = available_isas();
  ASSERT_FALSE(available.empty());
  EXPECT_EQ(available.front(), Isa::scalar);
  EXPECT_EQ(resolve(Isa::best), available.back());
  for (Isa isa : available) EXPECT_EQ(resolve(isa), isa);
}

TEST(Isa, OneTheCpuLacksIsAUsageError) {
  const auto available = available_isas();
  for (Isa isa : {Isa::avx2, Isa::avx512}) {
    if (std::find(available.begin(), available.end(), isa) != available.end()) continue;
    try {
      resolve(isa);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      EXPECT_NE(std::string(error.what()).find(to_string(isa)), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace spillway::optim::isa_test
