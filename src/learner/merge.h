// Sums of rows that several kernel calls computed for the same tokens.

#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

struct Range {
    int64_t start, end;

    int64_t size() const { return end - start; }
};

using Ranges = std::vector<Range>;

// Which rows of which shares belong to each token: those of token t stand from `ends[t]` to
// `ends[t + 1]`. 32-bit integers on the device that adds.
struct Rows {
    at::Tensor ends, shares, rows;

    // `of[i]` are the tokens of the rows of share i, in their order.
    static Rows of(const std::vector<const Ranges*>& of, int64_t tokens, c10::Device device);
};

// What one call computed, [rows][heads][dim], and for outputs of attention the log-sum-exp of their
// scores, [heads][rows].
struct Share {
    at::Tensor values;
    at::Tensor logsumexp;
};

// Most shares that are added at once: what fits the arguments of a CUDA kernel with room to spare.
constexpr size_t MOST_SHARES = 32;

// Adds shares token by token, in float32 or wider, and rounds once at the end. With log-sum-exps,
// outputs are weighed as if one softmax had been taken over all their scores.
class Sum {
   public:
    Sum(int64_t tokens, bool weighed) : tokens(tokens), weighed(weighed) {}

    // With `last`, `values` are of the type of the shares, else of the type that is added in.
    void add(const Rows& rows, const std::vector<Share>& shares, bool last);

    at::Tensor values, logsumexp;

   private:
    int64_t tokens;
    bool weighed;
};

// Numbers that shares are added in.
at::ScalarType wide(at::ScalarType type);
