module example.com/shop-operator
