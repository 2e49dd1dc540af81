// On the processor a loop; on CUDA one kernel that reads every share once and writes the sum once,
// compiled when it is first needed, as only the CPU parts of libtorch are there at build time.

#include "merge.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

using at::Tensor;

at::ScalarType wide(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

Rows Rows::of(const std::vector<const Ranges*>& of, int64_t tokens, c10::Device device) {
    std::vector<int32_t> ends(tokens + 1, 0);
    for (auto ranges : of) {
        for (auto range : *ranges) {
            for (auto token = range.start; token < range.end; ++token) {
                ends[token + 1] += 1;
            }
        }
    }
    for (int64_t token = 0; token < tokens; ++token) {
        ends[token + 1] += ends[token];
    }
    std::vector<int32_t> shares(ends[tokens]), rows(ends[tokens]);
    auto next = ends;
    for (size_t share = 0; share < of.size(); ++share) {
        int32_t row = 0;
        for (auto range : *of[share]) {
            for (auto token = range.start; token < range.end; ++token) {
                auto at = next[token]++;
                shares[at] = static_cast<int32_t>(share);
                rows[at] = row++;
            }
        }
    }
    auto there = [&](const std::vector<int32_t>& numbers) {
        return at::tensor(numbers, at::kInt).to(device);
    };
    return {there(ends), there(shares), there(rows)};
}

namespace {

// What a sum is given besides its shares; the running sum, if any, is one more share of each token.
struct Task {
    const Rows& rows;
    const std::vector<Share>& shares;
    const Tensor& before;
    const Tensor& logsumexp_before;
    Tensor& values;
    Tensor& logsumexp;
    bool weighed;
};

template <typename Number, typename Result>
void add_on_cpu(const Task& task) {
    using Wide = at::opmath_type<Number>;
    const auto tokens = task.values.size(0), heads = task.values.size(1), dim = task.values.size(2);
    const auto *ends = task.rows.ends.const_data_ptr<int32_t>(),
               *share_of = task.rows.shares.const_data_ptr<int32_t>(),
               *row_of = task.rows.rows.const_data_ptr<int32_t>();
    std::vector<const Number*> values;
    std::vector<const Wide*> logsumexps;
    for (auto& share : task.shares) {
        values.push_back(share.values.const_data_ptr<Number>());
        logsumexps.push_back(task.weighed ? share.logsumexp.const_data_ptr<Wide>() : nullptr);
    }
    const auto* before = task.before.defined() ? task.before.const_data_ptr<Wide>() : nullptr;
    const auto* logsumexp_before =
        before && task.weighed ? task.logsumexp_before.const_data_ptr<Wide>() : nullptr;
    auto* sums = task.values.mutable_data_ptr<Result>();
    auto* logsumexp = task.weighed ? task.logsumexp.mutable_data_ptr<Wide>() : nullptr;
    constexpr auto NONE = -std::numeric_limits<Wide>::infinity();
    at::parallel_for(0, tokens, 16, [&](int64_t from, int64_t to) {
        std::vector<Wide> sum(dim);
        for (auto token = from; token < to; ++token) {
            for (int64_t head = 0; head < heads; ++head) {
                auto of = [&](int32_t at) {
                    auto share = share_of[at];
                    return logsumexps[share][head * task.shares[share].values.size(0) + row_of[at]];
                };
                Wide whole = 0;
                if (task.weighed) {
                    auto most = before ? logsumexp_before[head * tokens + token] : NONE;
                    for (auto at = ends[token]; at < ends[token + 1]; ++at) {
                        most = std::max(most, of(at));
                    }
                    Wide total = before ? std::exp(logsumexp_before[head * tokens + token] - most) : 0;
                    for (auto at = ends[token]; at < ends[token + 1]; ++at) {
                        total += std::exp(of(at) - most);
                    }
                    whole = most == NONE ? NONE : most + std::log(total);
                    logsumexp[head * tokens + token] = whole;
                }
                auto weight = [&](Wide part) { return part == NONE ? Wide(0) : std::exp(part - whole); };
                const auto place = (token * heads + head) * dim;
                Wide kept = !before         ? Wide(0)
                            : task.weighed ? weight(logsumexp_before[head * tokens + token])
                                           : Wide(1);
                for (int64_t i = 0; i < dim; ++i) {
                    sum[i] = before ? kept * before[place + i] : Wide(0);
                }
                for (auto at = ends[token]; at < ends[token + 1]; ++at) {
                    const auto* row = values[share_of[at]] + (row_of[at] * heads + head) * dim;
                    auto by = task.weighed ? weight(of(at)) : Wide(1);
                    for (int64_t i = 0; i < dim; ++i) {
                        sum[i] += by * static_cast<Wide>(row[i]);
                    }
                }
                for (int64_t i = 0; i < dim; ++i) {
                    sums[place + i] = static_cast<Result>(sum[i]);
                }
            }
        }
    });
}

// Eight elements a thread. Both kernels of a source differ in what they write: bfloat16 at the end,
// else float32.
constexpr int EIGHT = 8;
constexpr const char* SOURCE = R"(
struct Shares {
    const uint4* values[32];
    const float* logsumexp[32];
    int rows[32];
};

__device__ float low(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ float high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }
// To the nearest, ties to even; what is no number stays none.
__device__ unsigned rounded(float x) {
    unsigned bits = __float_as_uint(x);
    return x != x ? 0x7fc0u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

template <bool LAST>
__device__ void add(const Shares& shares, const int* ends, const int* share_of, const int* row_of,
                    const float4* before, const float* logsumexp_before, void* values,
                    float* logsumexp, long long tokens, int heads, int eights) {
    const float NONE = __int_as_float(0xff800000);
    long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= tokens * heads * eights) return;
    int within = (int)(at % eights);
    long long pair = at / eights;
    int head = (int)(pair % heads);
    long long token = pair / heads;
    int first = ends[token], end = ends[token + 1];
    bool weighed = logsumexp != nullptr;
    float whole = 0.0f, kept = 1.0f;
    if (weighed) {
        float old = before ? logsumexp_before[head * tokens + token] : NONE;
        float most = old;
        for (int i = first; i < end; ++i) {
            int share = share_of[i];
            most = fmaxf(most, shares.logsumexp[share][(long long)head * shares.rows[share] + row_of[i]]);
        }
        float total = old == NONE ? 0.0f : expf(old - most);
        for (int i = first; i < end; ++i) {
            int share = share_of[i];
            float part = shares.logsumexp[share][(long long)head * shares.rows[share] + row_of[i]];
            total += part == NONE ? 0.0f : expf(part - most);
        }
        whole = most == NONE ? NONE : most + logf(total);
        kept = old == NONE ? 0.0f : expf(old - whole);
        if (within == 0) logsumexp[head * tokens + token] = whole;
    }
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    if (before) {
        float4 a = before[2 * at], b = before[2 * at + 1];
        sum[0] = kept * a.x; sum[1] = kept * a.y; sum[2] = kept * a.z; sum[3] = kept * a.w;
        sum[4] = kept * b.x; sum[5] = kept * b.y; sum[6] = kept * b.z; sum[7] = kept * b.w;
    }
    for (int i = first; i < end; ++i) {
        int share = share_of[i];
        long long row = row_of[i];
        float by = 1.0f;
        if (weighed) {
            float part = shares.logsumexp[share][(long long)head * shares.rows[share] + row];
            by = part == NONE ? 0.0f : expf(part - whole);
        }
        uint4 eight = shares.values[share][(row * heads + head) * eights + within];
        sum[0] += by * low(eight.x); sum[1] += by * high(eight.x);
        sum[2] += by * low(eight.y); sum[3] += by * high(eight.y);
        sum[4] += by * low(eight.z); sum[5] += by * high(eight.z);
        sum[6] += by * low(eight.w); sum[7] += by * high(eight.w);
    }
    if (LAST) {
        uint4 eight;
        eight.x = rounded(sum[0]) | rounded(sum[1]) << 16;
        eight.y = rounded(sum[2]) | rounded(sum[3]) << 16;
        eight.z = rounded(sum[4]) | rounded(sum[5]) << 16;
        eight.w = rounded(sum[6]) | rounded(sum[7]) << 16;
        ((uint4*)values)[at] = eight;
    } else {
        ((float4*)values)[2 * at] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        ((float4*)values)[2 * at + 1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
    }
}

#define KERNEL(name, last)                                                                       \
    extern "C" __global__ void name(                                                             \
        const __grid_constant__ Shares shares, const int* ends, const int* share_of,             \
        const int* row_of, const float4* before, const float* logsumexp_before, void* values,    \
        float* logsumexp, long long tokens, int heads, int eights) {                             \
        add<last>(shares, ends, share_of, row_of, before, logsumexp_before, values, logsumexp,   \
                  tokens, heads, eights);                                                        \
    }
KERNEL(add_and_keep, false)
KERNEL(add_and_round, true)
)";

struct Shares {
    std::array<const void*, MOST_SHARES> values;
    std::array<const void*, MOST_SHARES> logsumexp;
    std::array<int32_t, MOST_SHARES> rows;
};
static_assert(sizeof(Shares) == 20 * MOST_SHARES && MOST_SHARES == 32, "as the kernel reads it");

// The compiler and the driver, from the library through which libtorch itself reaches both.
class Driver {
   public:
    static const Driver& get() {
        static const Driver driver;
        return driver;
    }

    // A kernel of `SOURCE` for a device; its context is current, as this thread has used it.
    void* kernel(int device, bool last) const {
        static std::mutex lock;
        static std::map<int, std::array<void*, 2>> known;
        std::lock_guard<std::mutex> hold(lock);
        auto found = known.find(device);
        if (found == known.end()) {
            found = known.emplace(device, compile(device)).first;
        }
        return found->second[last];
    }

    void launch(void* kernel, unsigned blocks, unsigned threads, void* stream, void** arguments) const {
        check(cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr), "start");
    }

   private:
    Driver() {
        void* library = dlopen("libcaffe2_nvrtc.so", RTLD_NOW);
        if (library == nullptr) {
            throw std::runtime_error(std::string("the CUDA compiler, which --attention suffix does not "
                                                 "need, cannot be loaded: ") +
                                     dlerror());
        }
        // Names of libraries that it depends on are found through it.
        auto find = [&](auto& function, const char* name) {
            function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
            if (function == nullptr) {
                throw std::runtime_error(std::string("the CUDA compiler lacks ") + name);
            }
        };
        find(nvrtcCreateProgram, "nvrtcCreateProgram");
        find(nvrtcCompileProgram, "nvrtcCompileProgram");
        find(nvrtcGetPTXSize, "nvrtcGetPTXSize");
        find(nvrtcGetPTX, "nvrtcGetPTX");
        find(nvrtcGetProgramLogSize, "nvrtcGetProgramLogSize");
        find(nvrtcGetProgramLog, "nvrtcGetProgramLog");
        find(nvrtcDestroyProgram, "nvrtcDestroyProgram");
        find(cuDeviceGet, "cuDeviceGet");
        find(cuDeviceGetAttribute, "cuDeviceGetAttribute");
        find(cuModuleLoadData, "cuModuleLoadData");
        find(cuModuleGetFunction, "cuModuleGetFunction");
        find(cuLaunchKernel, "cuLaunchKernel");
    }

    static void check(int status, const char* what) {
        if (status != 0) {
            throw std::runtime_error(std::string("CUDA cannot ") + what +
                                     " the kernel that adds shares of attention: error " +
                                     std::to_string(status));
        }
    }

    std::array<void*, 2> compile(int index) const {
        constexpr int MAJOR = 75, MINOR = 76;
        int device = 0, major = 0, minor = 0;
        check(cuDeviceGet(&device, index), "find a device for");
        check(cuDeviceGetAttribute(&major, MAJOR, device), "ask for");
        check(cuDeviceGetAttribute(&minor, MINOR, device), "ask for");
        auto target = "--gpu-architecture=compute_" + std::to_string(major * 10 + minor);
        const char* options[] = {target.c_str(), "--std=c++17"};
        void* program = nullptr;
        check(nvrtcCreateProgram(&program, SOURCE, "forest_merge.cu", 0, nullptr, nullptr), "take");
        int status = nvrtcCompileProgram(program, 2, options);
        if (status != 0) {
            size_t size = 0;
            nvrtcGetProgramLogSize(program, &size);
            std::string log(size, '\0');
            nvrtcGetProgramLog(program, log.data());
            throw std::runtime_error("the kernel that adds shares of attention does not compile: " + log);
        }
        size_t size = 0;
        check(nvrtcGetPTXSize(program, &size), "compile");
        std::string code(size, '\0');
        check(nvrtcGetPTX(program, code.data()), "compile");
        nvrtcDestroyProgram(&program);
        void* module = nullptr;
        check(cuModuleLoadData(&module, code.data()), "load");
        std::array<void*, 2> kernels{};
        check(cuModuleGetFunction(&kernels[0], module, "add_and_keep"), "find");
        check(cuModuleGetFunction(&kernels[1], module, "add_and_round"), "find");
        return kernels;
    }

    int (*nvrtcCreateProgram)(void**, const char*, const char*, int, const char* const*,
                              const char* const*);
    int (*nvrtcCompileProgram)(void*, int, const char* const*);
    int (*nvrtcGetPTXSize)(void*, size_t*);
    int (*nvrtcGetPTX)(void*, char*);
    int (*nvrtcGetProgramLogSize)(void*, size_t*);
    int (*nvrtcGetProgramLog)(void*, char*);
    int (*nvrtcDestroyProgram)(void**);
    int (*cuDeviceGet)(int*, int);
    int (*cuDeviceGetAttribute)(int*, int, int);
    int (*cuModuleLoadData)(void**, const void*);
    int (*cuModuleGetFunction)(void**, void*, const char*);
    int (*cuLaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          void*, void**, void**);
};

void add_on_cuda(const Task& task, bool last) {
    constexpr unsigned THREADS = 256;
    auto address = [](const Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; };
    Shares shares{};
    for (size_t i = 0; i < task.shares.size(); ++i) {
        shares.values[i] = address(task.shares[i].values);
        shares.logsumexp[i] = task.weighed ? address(task.shares[i].logsumexp) : nullptr;
        shares.rows[i] = static_cast<int32_t>(task.shares[i].values.size(0));
    }
    const void *ends = address(task.rows.ends), *share_of = address(task.rows.shares),
               *row_of = address(task.rows.rows), *before = address(task.before),
               *logsumexp_before = task.weighed ? address(task.logsumexp_before) : nullptr;
    void* values = task.values.mutable_data_ptr();
    void* logsumexp = task.weighed ? task.logsumexp.mutable_data_ptr() : nullptr;
    auto tokens = task.values.size(0);
    auto heads = static_cast<int32_t>(task.values.size(1));
    auto eights = static_cast<int32_t>(task.values.size(2) / EIGHT);
    void* arguments[] = {&shares, &ends,      &share_of, &row_of, &before, &logsumexp_before,
                         &values, &logsumexp, &tokens,   &heads,  &eights};
    auto device = task.values.device();
    c10::impl::VirtualGuardImpl guard(device.type());
    auto stream = guard.getStream(device);
    void* handle = stream.id() == 0 ? nullptr : guard.getStreamNativeHandle(stream);
    auto blocks = (tokens * heads * eights + THREADS - 1) / THREADS;
    auto& driver = Driver::get();
    driver.launch(driver.kernel(device.index(), last), static_cast<unsigned>(blocks), THREADS, handle,
                  arguments);
}

}  // namespace

void Sum::add(const Rows& rows, const std::vector<Share>& shares, bool last) {
    auto& like = shares.at(0).values;
    auto type = last ? like.scalar_type() : wide(like.scalar_type());
    auto sum = at::empty({tokens, like.size(1), like.size(2)}, like.options().dtype(type));
    auto sum_logsumexp =
        weighed ? at::empty({like.size(1), tokens}, like.options().dtype(wide(like.scalar_type())))
                : Tensor();
    if (tokens > 0) {
        Task task{rows, shares, values, logsumexp, sum, sum_logsumexp, weighed};
        if (like.is_cuda()) {
            add_on_cuda(task, last);
        } else {
            AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, like.scalar_type(), "forest_merge", [&] {
                last ? add_on_cpu<scalar_t, scalar_t>(task)
                     : add_on_cpu<scalar_t, at::opmath_type<scalar_t>>(task);
            });
        }
    }
    values = sum;
    logsumexp = sum_logsumexp;
}
