// A Secret is known only to the ranks of a run. A rank can prove that it knows the secret without sending it. A proof is
// an HMAC-SHA-512-256 of libsodium (https://doc.libsodium.org, crypto_auth). Plain values; thread-safe.
#pragma once
#include <string>
#include <vector>

namespace spillway::parallel {

/// Returns 128 random bits as 32 hexadecimal digits.
std::string random_bits();
/// Returns true if the text could be a result of random_bits(): 32 hexadecimal digits.
bool are_random_bits(const std::string& text);

class Secret {
 public:
  /// Makes a secret from `token`, which may have any length. The secret is only as strong as the token is hard to guess.
  explicit Secret(const std::string& token);
  /// Returns a proof of these words in this order: 64 hexadecimal digits, which only a process that knows the token can compute.
  std::string proof_of(const std::vector<std::string>& words) const;
  bool proves(const std::string& proof, const std::vector<std::string>& words) const;

 private:
  std::string key_;
};

}  // namespace spillway::parallel
