// Attention over a forest of sequences (spec: docs/shared-prefix.md). Queries, keys and values are
// [tokens][heads][dim]; every token is there once, and attends to stretches of tokens.
//
// Two ways to the same numbers. `suffix` is one call of the flash kernel for sequences of different
// lengths, with the keys of every path gathered behind one another. `cascade` cuts the scores into
// blocks (the square of every path, a rectangle for every fork), computes each with its
// log-sum-exp, and merges them. Given the output and the log-sum-exp of a whole row, the backward
// kernel of a block gives exactly that block's share, so the shares add up.

#include <ATen/core/Tensor.h>
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "merge.h"
#include "shim.h"

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

// A rectangle of scores, or with level 0 the causal square of a path. Blocks of one level have
// queries that do not overlap.
struct Block {
    int64_t query, query_end, key, key_end, level, dense;

    int64_t queries() const { return query_end - query; }
    int64_t keys() const { return key_end - key; }
};
static_assert(sizeof(Block) == 6 * sizeof(int64_t), "as Rust passes it");

Tensor cut(const Tensor& x, Range range) { return x.narrow(0, range.start, range.size()); }

// Adjacent ranges as one.
void extend(Ranges& ranges, Range next) {
    if (!ranges.empty() && ranges.back().end == next.start) {
        ranges.back().end = next.end;
    } else {
        ranges.push_back(next);
    }
}

// The rows of these ranges one behind the other; a view where there is one range.
Tensor gather(const Tensor& x, const Ranges& ranges) {
    if (ranges.size() == 1) {
        return cut(x, ranges[0]);
    }
    std::vector<Tensor> parts;
    for (auto range : ranges) {
        parts.push_back(cut(x, range));
    }
    return at::cat(parts, 0);
}

// What a block's kernel is given besides tensors.
struct Ends {
    Tensor queries, keys;
    int64_t most_queries = 0, most_keys = 0;
};

// `count` sequences of equal length, [count][heads][tokens][dim], as the dense kernels take them.
Tensor upright(const Tensor& x, int64_t count = 1) {
    return x.unflatten(0, {count, -1}).transpose(1, 2);
}
Tensor flat(const Tensor& x) { return x.transpose(1, 2).flatten(0, 1); }

// The blocks of a level that one kernel call computes together; for a dense kernel one block, or
// squares of one size, one behind the other.
struct Call {
    bool dense = false;
    bool causal = false;
    int64_t count = 1;
    Ranges queries, keys;
    Ends ends;
};

// Calls whose results are added at once, and where they belong.
struct Batch {
    size_t begin, end;
    Rows queries, keys;
};

// What a forest comes to; made once, as every layer computes the same calls.
struct Calls : torch::CustomClassHolder {
    std::vector<Call> all;
    std::vector<Batch> batches;
};

using SharedCalls = c10::intrusive_ptr<Calls>;

// Results of so many times the tokens are held before they are added.
constexpr int64_t MOST_HELD = 4;

std::vector<Batch> batches(const std::vector<Call>& calls, int64_t tokens, c10::Device device) {
    std::vector<Batch> made;
    for (size_t begin = 0; begin < calls.size();) {
        int64_t held = 0;
        std::vector<const Ranges*> queries, keys;
        auto end = begin;
        for (; end < calls.size() && queries.size() < MOST_SHARES; ++end) {
            for (auto range : calls[end].queries) {
                held += range.size();
            }
            if (end > begin && held > MOST_HELD * tokens) {
                break;
            }
            queries.push_back(&calls[end].queries);
            keys.push_back(&calls[end].keys);
        }
        made.push_back({begin, end, Rows::of(queries, tokens, device), Rows::of(keys, tokens, device)});
        begin = end;
    }
    return made;
}

SharedCalls calls(const std::vector<Block>& blocks, c10::Device device) {
    auto made = c10::make_intrusive<Calls>();
    auto& all = made->all;
    int64_t last = -1, tokens = 0;
    for (auto& block : blocks) {
        last = std::max(last, block.level);
        tokens = std::max(tokens, block.query_end);
    }
    // The processor's kernel takes one sequence at a time.
    bool alone = device.is_cpu();
    for (int64_t level = 0; level <= last; ++level) {
        Call together;
        std::vector<int32_t> query_ends{0}, key_ends{0};
        for (auto& block : blocks) {
            if (block.level != level) {
                continue;
            }
            if (alone || block.dense) {
                if (level == 0 && !all.empty() && all.back().dense &&
                    all.back().queries[0].end == block.query &&
                    all.back().queries[0].size() ==
                        all.back().count * block.queries()) {
                    all.back().count += 1;
                    all.back().queries[0].end = all.back().keys[0].end = block.query_end;
                    continue;
                }
                Call call;
                call.dense = true;
                call.causal = level == 0;
                call.queries = {{block.query, block.query_end}};
                call.keys = {{block.key, block.key_end}};
                all.push_back(call);
                continue;
            }
            extend(together.queries, {block.query, block.query_end});
            extend(together.keys, {block.key, block.key_end});
            query_ends.push_back(query_ends.back() + static_cast<int32_t>(block.queries()));
            key_ends.push_back(key_ends.back() + static_cast<int32_t>(block.keys()));
            together.ends.most_queries = std::max(together.ends.most_queries, block.queries());
            together.ends.most_keys = std::max(together.ends.most_keys, block.keys());
        }
        if (query_ends.size() > 1) {
            together.causal = level == 0;
            together.ends.queries = at::tensor(query_ends, at::kInt).to(device);
            together.ends.keys = level == 0 ? together.ends.queries
                                            : at::tensor(key_ends, at::kInt).to(device);
            all.push_back(together);
        }
    }
    made->batches = batches(all, tokens, device);
    return made;
}

// Heads of keys repeated for the queries that share them, for kernels that cannot.
Tensor repeated(const Tensor& x, int64_t heads) {
    return x.size(1) == heads ? x : x.repeat_interleave(heads / x.size(1), 1);
}

// Output [tokens][heads][dim] and log-sum-exp [heads][tokens] of one call.
std::pair<Tensor, Tensor> forward(const Call& call, const Tensor& query, const Tensor& key,
                                  const Tensor& value) {
    auto q = gather(query, call.queries), k = gather(key, call.keys), v = gather(value, call.keys);
    if (!call.dense) {
        auto all = at::_flash_attention_forward(q, k, v, call.ends.queries, call.ends.keys,
                                                call.ends.most_queries, call.ends.most_keys, 0.0,
                                                call.causal, false);
        return {std::get<0>(all), std::get<1>(all)};
    }
    if (q.is_cuda()) {
        auto all = at::_scaled_dot_product_cudnn_attention(
            upright(q, call.count), upright(k, call.count), upright(v, call.count), {}, true, 0.0,
            call.causal, false);
        return {flat(std::get<0>(all)),
                std::get<1>(all).transpose(0, 1).reshape({q.size(1), q.size(0)})};
    }
    auto all = at::_scaled_dot_product_flash_attention_for_cpu(
        upright(q, call.count), upright(repeated(k, q.size(1)), call.count),
        upright(repeated(v, q.size(1)), call.count), 0.0, call.causal);
    return {flat(std::get<0>(all)),
            std::get<1>(all).transpose(0, 1).reshape({q.size(1), q.size(0)})};
}

struct Gradients {
    Tensor query, key, value;
};

// The shares of one call in the gradients, given output and log-sum-exp over all calls.
Gradients backward(const Call& call, const Tensor& slope, const Tensor& query, const Tensor& key,
                   const Tensor& value, const Tensor& out, const Tensor& logsumexp) {
    auto q = gather(query, call.queries), k = gather(key, call.keys), v = gather(value, call.keys);
    auto dy = gather(slope, call.queries), y = gather(out, call.queries);
    std::vector<Tensor> parts;
    for (auto range : call.queries) {
        parts.push_back(logsumexp.narrow(1, range.start, range.size()));
    }
    auto lse = (parts.size() == 1 ? parts[0] : at::cat(parts, 1)).contiguous();
    auto by_sequence = [&] { return lse.unflatten(1, {call.count, -1}).transpose(0, 1).contiguous(); };
    if (!call.dense) {
        // Without dropout no random state is read.
        auto random = at::zeros({2}, q.options().dtype(at::kLong));
        auto all = at::_flash_attention_backward(dy, q, k, v, y, lse, call.ends.queries, call.ends.keys,
                                                 call.ends.most_queries, call.ends.most_keys, 0.0,
                                                 call.causal, random, random);
        return {std::get<0>(all), std::get<1>(all), std::get<2>(all)};
    }
    if (q.is_cuda()) {
        auto random = at::zeros({}, q.options().dtype(at::kLong));
        auto all = at::_scaled_dot_product_cudnn_attention_backward(
            upright(dy, call.count), upright(q, call.count), upright(k, call.count),
            upright(v, call.count), upright(y, call.count), by_sequence().unsqueeze(3), random, random,
            {}, {}, {}, q.size(0) / call.count, k.size(0) / call.count, 0.0, call.causal);
        return {flat(std::get<0>(all)), flat(std::get<1>(all)), flat(std::get<2>(all))};
    }
    auto all = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        upright(dy, call.count), upright(q, call.count), upright(repeated(k, q.size(1)), call.count),
        upright(repeated(v, q.size(1)), call.count), upright(y, call.count), by_sequence(), 0.0,
        call.causal);
    auto summed = [&](const Tensor& x) {
        auto wide = flat(x);
        return k.size(1) == q.size(1)
                   ? wide
                   : wide.reshape({k.size(0), k.size(1), -1, k.size(2)}).sum(2);
    };
    return {flat(std::get<0>(all)), summed(std::get<1>(all)), summed(std::get<2>(all))};
}

// One call that computes everything, in the order of the tokens.
bool is_whole(const Calls& calls, const Tensor& query) {
    auto& all = calls.all;
    return all.size() == 1 && all[0].queries.size() == 1 &&
           all[0].queries[0].size() == query.size(0);
}

std::pair<Tensor, Tensor> cascade_forward(const Calls& calls, const Tensor& query, const Tensor& key,
                                          const Tensor& value) {
    if (is_whole(calls, query)) {
        auto [out, lse] = forward(calls.all[0], query, key, value);
        return {out.contiguous(), lse.contiguous()};
    }
    Sum sum(query.size(0), true);
    for (auto& batch : calls.batches) {
        std::vector<Share> shares;
        for (auto at = batch.begin; at < batch.end; ++at) {
            auto [out, lse] = forward(calls.all[at], query, key, value);
            shares.push_back({out.contiguous(), lse.contiguous()});
        }
        sum.add(batch.queries, shares, batch.end == calls.all.size());
    }
    return {sum.values, sum.logsumexp};
}

Gradients cascade_backward(const Calls& calls, const Tensor& slope, const Tensor& query,
                           const Tensor& key, const Tensor& value, const Tensor& out,
                           const Tensor& logsumexp) {
    if (is_whole(calls, query)) {
        return backward(calls.all[0], slope, query, key, value, out, logsumexp);
    }
    auto tokens = query.size(0);
    Sum of_query(tokens, false), of_key(tokens, false), of_value(tokens, false);
    for (auto& batch : calls.batches) {
        std::vector<Share> queries, keys, values;
        for (auto at = batch.begin; at < batch.end; ++at) {
            auto share = backward(calls.all[at], slope, query, key, value, out, logsumexp);
            queries.push_back({share.query.contiguous(), {}});
            keys.push_back({share.key.contiguous(), {}});
            values.push_back({share.value.contiguous(), {}});
        }
        auto last = batch.end == calls.all.size();
        of_query.add(batch.queries, queries, last);
        of_key.add(batch.keys, keys, last);
        of_value.add(batch.keys, values, last);
    }
    return {of_query.values, of_key.values, of_value.values};
}

struct Cascade : torch::autograd::Function<Cascade> {
    static variable_list forward(AutogradContext* context, Tensor query, Tensor key, Tensor value,
                                 SharedCalls calls, std::optional<Tensor> known_out,
                                 std::optional<Tensor> known_logsumexp) {
        Tensor out, logsumexp;
        if (known_out) {
            std::tie(out, logsumexp) = std::tie(*known_out, *known_logsumexp);
        } else {
            std::tie(out, logsumexp) = cascade_forward(*calls, query, key, value);
        }
        context->save_for_backward({query, key, value, out, logsumexp});
        context->saved_data["calls"] = c10::IValue::make_capsule(calls);
        context->mark_non_differentiable({logsumexp});
        return {out, logsumexp};
    }

    static variable_list backward(AutogradContext* context, variable_list slopes) {
        auto saved = context->get_saved_variables();
        auto calls = c10::static_intrusive_pointer_cast<Calls>(context->saved_data["calls"].toCapsule());
        auto share = cascade_backward(*calls, slopes[0].contiguous(), saved[0], saved[1], saved[2],
                                      saved[3], saved[4]);
        return {share.query, share.key, share.value, Tensor(), Tensor(), Tensor()};
    }
};

// Keys and values of every path behind one another, each path's own last.
struct Suffix : torch::autograd::Function<Suffix> {
    static variable_list forward(AutogradContext* context, Tensor query, Tensor key, Tensor value,
                                 Tensor places, Tensor query_ends, Tensor key_ends,
                                 int64_t most_queries, int64_t most_keys,
                                 std::optional<Tensor> known_out,
                                 std::optional<Tensor> known_logsumexp) {
        Tensor out, logsumexp;
        if (known_out) {
            std::tie(out, logsumexp) = std::tie(*known_out, *known_logsumexp);
        } else {
            auto all = at::_flash_attention_forward(query, key.index_select(0, places),
                                                    value.index_select(0, places), query_ends, key_ends,
                                                    most_queries, most_keys, 0.0, true, false);
            out = std::get<0>(all);
            logsumexp = std::get<1>(all);
        }
        context->save_for_backward(
            {query, key, value, places, query_ends, key_ends, out, logsumexp});
        context->saved_data["queries"] = most_queries;
        context->saved_data["keys"] = most_keys;
        context->mark_non_differentiable({logsumexp});
        return {out, logsumexp};
    }

    static variable_list backward(AutogradContext* context, variable_list slopes) {
        auto saved = context->get_saved_variables();
        auto &query = saved[0], &key = saved[1], &value = saved[2], &places = saved[3];
        auto random = at::zeros({2}, query.options().dtype(at::kLong));
        auto all = at::_flash_attention_backward(
            slopes[0].contiguous(), query, key.index_select(0, places), value.index_select(0, places),
            saved[6], saved[7], saved[4], saved[5], context->saved_data["queries"].toInt(),
            context->saved_data["keys"].toInt(), 0.0, true, random, random);
        auto sum = [&](const Tensor& like, const Tensor& shares) {
            auto sums = at::zeros(like.sizes(), like.options().dtype(wide(like.scalar_type())));
            sums.index_add_(0, places, shares.to(sums.scalar_type()));
            return sums.to(like.scalar_type());
        };
        return {std::get<0>(all), sum(key, std::get<1>(all)), sum(value, std::get<2>(all)),
                Tensor(),         Tensor(),                   Tensor(),
                Tensor(),         Tensor(),                   Tensor(),
                Tensor()};
    }
};

std::optional<Tensor> optional(const Tensor* tensor) {
    return tensor == nullptr ? std::nullopt : std::optional<Tensor>(*tensor);
}

}  // namespace

extern "C" {

// The calls that blocks come to, of six numbers each: queries from and to, keys from and to, level,
// dense. For the processor, or for the CUDA device of this index when it is not negative.
SharedCalls* forest_calls(const int64_t* numbers, int64_t count, int8_t index) {
    SharedCalls* made = nullptr;
    caught([&] {
        std::vector<Block> blocks(count);
        std::memcpy(blocks.data(), numbers, count * sizeof(Block));
        auto device = index < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, index);
        made = new SharedCalls(calls(blocks, device));
    });
    return made;
}

void forest_calls_free(SharedCalls* calls) { delete calls; }

// With `known`, the output and log-sum-exp of the same call before, only the way back is computed.
// Gives both.
bool forest_cascade(const Tensor* query, const Tensor* key, const Tensor* value, const SharedCalls* calls,
                    const Tensor* known_out, const Tensor* known_logsumexp, Tensor** out,
                    Tensor** logsumexp) {
    return caught([&] {
        auto all = Cascade::apply(*query, *key, *value, *calls, optional(known_out),
                                  optional(known_logsumexp));
        *out = new Tensor(all[0]);
        *logsumexp = new Tensor(all[1]);
    });
}

// `places` are the tokens whose keys stand behind one another, path after path.
bool forest_suffix(const Tensor* query, const Tensor* key, const Tensor* value, const Tensor* places,
                   const Tensor* query_ends, const Tensor* key_ends, int64_t most_queries,
                   int64_t most_keys, const Tensor* known_out, const Tensor* known_logsumexp,
                   Tensor** out, Tensor** logsumexp) {
    return caught([&] {
        auto all = Suffix::apply(*query, *key, *value, *places, *query_ends, *key_ends, most_queries,
                                 most_keys, optional(known_out), optional(known_logsumexp));
        *out = new Tensor(all[0]);
        *logsumexp = new Tensor(all[1]);
    });
}
}
