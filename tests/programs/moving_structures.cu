// A list, a search tree and a hash table in device memory, full of pointers, that grow round by round; every
// round checks all that was there before.
#include "rounds.h"

enum { KEYS = 512, BUCKETS = 256 }; // keys of a round

struct Item {
    Item *next;
    unsigned key;
};

struct Leaf {
    Leaf *below[2];
    unsigned key;
};

struct World {
    Item *list; // newest first
    Item *buckets[BUCKETS];
    Leaf *root;
    unsigned items;
};

struct Found {
    unsigned listed, in_tree, in_table;
    unsigned long long sum, depth;
    const Item *newest, *oldest;
};

// All different: an odd factor permutes the numbers.
__host__ __device__ unsigned key_of(unsigned number) {
    return number * 2654435761u;
}

__global__ void grow(World *world, Item *list_items, Leaf *leaves, unsigned first) {
    for (unsigned i = 0; i < KEYS; i++) {
        const unsigned key = key_of(first + i);
        list_items[i] = {world->list, key};
        world->list = &list_items[i];
        Leaf **place = &world->root;
        while (*place)
            place = &(*place)->below[key > (*place)->key];
        leaves[i] = {{nullptr, nullptr}, key};
        *place = &leaves[i];
    }
    world->items += KEYS;
}

__global__ void insert(World *world, Item *items, unsigned first) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned key = key_of(first + i);
    items[i].key = key;
    auto *head = reinterpret_cast<unsigned long long *>(&world->buckets[key % BUCKETS]);
    items[i].next = reinterpret_cast<Item *>(
        atomicExch(head, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(&items[i]))));
}

__global__ void walk_list(const World *world, Found *found) {
    found->newest = world->list;
    for (const Item *item = world->list; item; item = item->next) {
        found->listed++;
        found->sum += item->key;
        found->oldest = item;
    }
}

__global__ void look_up(const World *world, Found *found) {
    const unsigned key = key_of(blockIdx.x * blockDim.x + threadIdx.x);
    unsigned depth = 1;
    const Leaf *leaf = world->root;
    for (; leaf && leaf->key != key; depth++)
        leaf = leaf->below[key > leaf->key];
    atomicAdd(&found->in_tree, leaf != nullptr);
    atomicAdd(&found->depth, static_cast<unsigned long long>(depth));
    const Item *item = world->buckets[key % BUCKETS];
    while (item && item->key != key)
        item = item->next;
    atomicAdd(&found->in_table, item != nullptr);
}

int main(int argc, char **argv) {
    const int rounds = rounds_wanted(argc, argv);
    Item *list_items[MOST_ROUNDS], *table_items[MOST_ROUNDS];
    Leaf *leaves[MOST_ROUNDS];
    World *world, copy;
    Found *found, result;
    unsigned long long sum = 0;
    RT_OK(cudaMalloc(&world, sizeof *world));
    RT_OK(cudaMemset(world, 0, sizeof *world));
    RT_OK(cudaMalloc(&found, sizeof *found));
    show_pointer("start", "world", reinterpret_cast<uint64_t>(world));
    RT_OK(cudaDeviceSynchronize()); // nothing is on its way any more while it waits
    for (int round = 0; round < rounds; round++) {
        const unsigned first = round * KEYS;
        begin_round(round + 1);
        RT_OK(cudaMalloc(&list_items[round], KEYS * sizeof(Item)));
        RT_OK(cudaMalloc(&table_items[round], KEYS * sizeof(Item)));
        RT_OK(cudaMalloc(&leaves[round], KEYS * sizeof(Leaf)));
        grow<<<1, 1>>>(world, list_items[round], leaves[round], first);
        insert<<<KEYS / 64, 64>>>(world, table_items[round], first);
        RT_OK(cudaMemset(found, 0, sizeof *found));
        walk_list<<<1, 1>>>(world, found);
        look_up<<<(round + 1) * KEYS / 64, 64>>>(world, found);
        RT_OK(cudaMemcpy(&result, found, sizeof result, cudaMemcpyDeviceToHost));
        for (unsigned i = first; i < first + KEYS; i++)
            sum += key_of(i);
        EXPECT(result.listed == first + KEYS && result.sum == sum);
        EXPECT(result.in_tree == first + KEYS && result.in_table == first + KEYS);
        EXPECT(result.newest == list_items[round] + KEYS - 1 && result.oldest == list_items[0]);
        printf("%u keys, sum %llu, paths %llu\n", result.listed, result.sum, result.depth);
    }
    RT_OK(cudaMemcpy(&copy, world, sizeof copy, cudaMemcpyDeviceToHost));
    EXPECT(copy.items == static_cast<unsigned>(rounds) * KEYS && copy.root == leaves[0]);
    show_pointer("end", "world", reinterpret_cast<uint64_t>(world));
    for (int round = 0; round < rounds; round++) {
        RT_QUIET(cudaFree(list_items[round]));
        RT_QUIET(cudaFree(table_items[round]));
        RT_QUIET(cudaFree(leaves[round]));
    }
    return check_failed || check_repeated;
}
